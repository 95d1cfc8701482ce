// `plugins`, and the keys that belong to plugins (config/plugins.hpp).
//
// Errors (usage): [rlalgo.config.5] plugins is no list; [rlalgo.config.10] a plugin that would be another training.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/plugins.hpp>

namespace rlalgo::config::detail {

// What a file says of one plugin.
struct PluginAsked {
  std::string name = {};                               // as `plugins` lists it; empty: not there
  std::vector<std::pair<std::string, Place>> on = {};  // its keys that are on
  bool acts = false;

  [[nodiscard]] std::string keys() const {
    std::string out;
    for (const auto& [key, place] : on) out += (out.empty() ? "" : ", ") + key;
    return out;
  }
};

inline PluginAsked asked_of(Reader& reader, const Plugin& plugin, const std::vector<std::string>& names) {
  PluginAsked out;
  for (const std::string& name : names)
    if (is_plugin(name, plugin)) out.name = name;
  out.acts = plugin.acts_by_name && !out.name.empty();
  for (const Member& member : reader.section().members) {
    if (!is_key_of(member.key, plugin) || reader.knows(member.key)) continue;
    const Node* const value = reader.take(member.key);
    if (value == nullptr || !is_on(*value)) continue;
    out.on.emplace_back(member.key, value->place);
    out.acts = out.acts || std::find(plugin.acts.begin(), plugin.acts.end(), member.key) != plugin.acts.end();
  }
  return out;
}

inline void judge_plugin(Reader& reader, const Plugin& plugin, const PluginAsked& asked, const Place& list) {
  if (asked.name.empty() && asked.on.empty()) return;
  const std::string own = "axolotl.integrations." + std::string(plugin.package) + "." + std::string(plugin.class_name);
  const std::string reason(plugin.reason);
  if (asked.acts)
    return reader.refuse_own(10, {.what = "this build has no plugin " + own,
                                  .found = asked.on.empty() ? asked.name : asked.keys(),
                                  .where = (asked.on.empty() ? list : asked.on.front().second).text(),
                                  .remedy = reason});
  std::string text = asked.name.empty()
                         ? asked.keys() + " (" + asked.on.front().second.text() + ") of the plugin " + own
                         : "the plugin " + asked.name + " (" + list.text() + ")";
  if (!asked.name.empty() && !asked.on.empty()) text += " with " + asked.keys();
  reader.findings().warnings.push_back(text + (asked.name.empty() && asked.on.size() > 1 ? " have" : " has") +
                                       " no effect: " + reason);
}

// Before the tables of keys without effect are applied.
inline void read_plugins(Reader& reader) {
  std::vector<std::string> names;
  reader.read("plugins", names);
  const Place list = reader.given("plugins") ? reader.section().find("plugins")->place : Place{};
  for (const Plugin& plugin : plugins()) {
    if (plugin.used) continue;
    judge_plugin(reader, plugin, asked_of(reader, plugin, names), list);
  }
  for (const std::string& name : names)
    if (std::none_of(plugins().begin(), plugins().end(), [&](const Plugin& p) { return is_plugin(name, p); }))
      reader.findings().warnings.push_back("the plugin " + name + " (" + list.text() +
                                           ") is not loaded: plugins are Python code");
}

}  // namespace rlalgo::config::detail
