// Which routes a server has, and what it calls itself, found out by asking:
//
//   GET /openapi.json   its list of paths; where it gives none, GET of each path in question: 405 is a route for POST;
//                       any other answer, and none, say nothing
//   GET /version        {"version"}, which vLLM and rlalgo answer
//
// A path is known with and without a slash at its end.
//
// Errors: those of json_client.hpp, where it cannot be reached.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/http/json_client.hpp>

namespace rlalgo::http {

class ServedRoutes {
 public:
  using Json = JsonClient::Json;

  // `in_question`: the routes for POST that has() will be asked for.
  ServedRoutes(JsonClient& client, std::span<const std::string_view> in_question) {
    const Json list = answer(client, "/openapi.json");
    const auto paths = list.is_object() ? list.find("paths") : list.end();
    if (list.is_object() && paths != list.end() && paths->is_object()) {
      listed_ = true;
      for (const auto& [path, methods] : paths->items()) paths_.insert(without_slash(path));
    } else {
      for (const std::string_view path : in_question)
        if (const Result result = client.glance(std::string(path));
            result.answered() && result.response().status == 405)
          paths_.insert(without_slash(path));
    }
    const Json version = answer(client, "/version");
    const std::string number = text(version, "version"), own_name = text(version, "server");
    name_ = own_name.empty() ? (number.empty() ? "a server" : "vLLM") : own_name;
    described_ = name_ + (number.empty() ? "" : " " + number);
  }

  [[nodiscard]] bool has(std::string_view path) const { return paths_.contains(without_slash(path)); }
  // False only where the server's own list does not have it.
  [[nodiscard]] bool may_have(std::string_view path) const { return !listed_ || has(path); }
  [[nodiscard]] bool is_rlalgo() const { return name_ == "rlalgo"; }
  // "vLLM 0.32.0"; "a server" where it does not say.
  [[nodiscard]] const std::string& described() const noexcept { return described_; }

 private:
  // The body of a 2xx response; null for everything else.
  static Json answer(JsonClient& client, const std::string& path) {
    const Result result = client.look(path);
    if (!result.ok()) return nullptr;
    auto [json, problem] = core::read_json<Json>(result.response().body);
    return problem.text.empty() ? std::move(json) : Json(nullptr);
  }
  static std::string text(const Json& object, const char* name) {
    const bool there = object.is_object() && object.contains(name) && object[name].is_string();
    return there ? object[name].get<std::string>() : std::string();
  }
  static std::string without_slash(std::string_view path) {
    if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    return std::string(path);
  }

  bool listed_ = false;
  std::set<std::string> paths_;
  std::string name_, described_;
};

}  // namespace rlalgo::http
