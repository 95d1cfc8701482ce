// Which servers a NeMo Gym has, as its head server says.
//
// Every server is an entry of the head's document: its name at the top, below it one of four sections, below that the name
// it has within its kind, host and port. Agents and datasets refer to a server by the name at the top; the inner one is
// understood where it is unique.
//
// Errors: [rlalgo.remote.70] what the head says cannot be read; [.71] no server of that name, with those that exist; [.72]
// an inner name that several servers have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>

namespace rlalgo::remote {

enum class GymKind { resources, agent, model, environment };

struct GymServer {
  GymKind kind = GymKind::resources;
  std::string name;       // at the top
  std::string inner;      // within its kind
  std::string url;        // http://host:port
  std::string resources;  // of an agent: the resources server that it uses, by its name; empty: not said
};

class GymDirectory {
 public:
  using Json = nlohmann::ordered_json;

  GymDirectory() = default;
  // `document`: the head's, decoded. `head` names it in errors.
  GymDirectory(const Json& document, const std::string& head) {
    static constexpr std::pair<const char*, GymKind> sections[] = {{"resources_servers", GymKind::resources},
                                                                   {"responses_api_agents", GymKind::agent},
                                                                   {"responses_api_models", GymKind::model},
                                                                   {"environment_servers", GymKind::environment}};
    if (!document.is_object()) unreadable(head, "no mapping of names to servers");
    for (const auto& [name, entry] : document.items())
      for (const auto& [section, kind] : sections) {
        if (!entry.is_object() || !entry.contains(section)) continue;
        const Json& inner = entry[section];
        if (!inner.is_object() || inner.empty() || !inner.begin()->is_object())
          unreadable(head, name + "." + section + " is no server");
        const Json& server = *inner.begin();
        const auto port = server.find("port");
        if (port == server.end() || !port->is_number_integer()) continue;  // not started yet
        std::string host = "127.0.0.1";
        if (const auto given = server.find("host"); given != server.end() && given->is_string())
          host = given->get<std::string>();
        if (host == "0.0.0.0" || host == "localhost") host = "127.0.0.1";
        GymServer one{.kind = kind,
                      .name = name,
                      .inner = inner.begin().key(),
                      .url = "http://" + host + ":" + std::to_string(port->get<std::int64_t>()),
                      .resources = {}};
        if (const auto uses = server.find("resources_server"); uses != server.end() && uses->is_object())
          one.resources = uses->value("name", "");
        servers_.push_back(std::move(one));
      }
  }

  [[nodiscard]] const std::vector<GymServer>& servers() const noexcept { return servers_; }

  // By the name at the top, or an inner one that only one server of the kind has.
  [[nodiscard]] const GymServer& find(GymKind kind, const std::string& name, const std::string& where) const {
    std::vector<const GymServer*> inner;
    std::vector<std::string> names;
    for (const GymServer& server : servers_) {
      if (server.kind != kind) continue;
      if (server.name == name) return server;
      if (server.inner == name) inner.push_back(&server);
      names.push_back(server.name);
    }
    if (inner.size() == 1) return *inner.front();
    std::string list;
    for (const std::string& one : names) list += (list.empty() ? "" : ", ") + one;
    if (inner.size() > 1)
      core::raise("remote", 72,
                  {.what = "several " + word(kind) + "s of the Gym have this inner name",
                   .found = name,
                   .expected = "the name of one: " + list,
                   .where = where});
    const std::string nearest = core::nearest_name(name, names);
    core::raise("remote", 71,
                {.what = "the Gym has no such " + word(kind),
                 .found = name,
                 .expected = list.empty() ? "any: it has none" : "one of " + list,
                 .where = where,
                 .remedy = nearest.empty()
                               ? "add its configuration to nemo_gym_config_paths, or to the command that starts the Gym"
                               : "did you mean " + nearest + "?"});
  }

  [[nodiscard]] static std::string word(GymKind kind) {
    return kind == GymKind::resources ? "resources server" : kind == GymKind::agent ? "agent" : "server";
  }
  [[noreturn]] static void unreadable(const std::string& head, const std::string& found) {
    core::raise("remote", 70,
                {.what = "what the head server of the Gym says cannot be read",
                 .found = found,
                 .expected = "the configuration of its servers",
                 .where = head,
                 .remedy = "is that the port of a NeMo Gym's head server (nemo_gym_head_port)?"});
  }

 private:
  std::vector<GymServer> servers_;
};

}  // namespace rlalgo::remote
