#include <rlalgo/config/plugins.hpp>

#include <support/catch.hpp>

#include <set>
#include <string>

using namespace rlalgo::config;

TEST_CASE("every plugin has a reason, and no key belongs to two") {
  std::set<std::string_view> keys, names;
  for (const Plugin& plugin : plugins()) {
    INFO(plugin.class_name);
    CHECK(names.insert(plugin.class_name).second);
    CHECK_FALSE(plugin.reason.empty());
    CHECK((plugin.used || !plugin.keys.empty()));
    for (const std::string_view key : plugin.keys) CHECK(keys.insert(key).second);
    for (const std::string_view key : plugin.acts) CHECK(is_key_of(key, plugin));
  }
}

TEST_CASE("a plugin is known by its package and class, wherever its module is") {
  const auto named = [](std::string_view name) {
    std::string out;
    for (const Plugin& plugin : plugins())
      if (is_plugin(name, plugin)) out += plugin.class_name;
    return out;
  };
  CHECK(named("axolotl.integrations.liger.LigerPlugin") == "LigerPlugin");
  CHECK(named("axolotl.integrations.liger.plugin.LigerPlugin") == "LigerPlugin");
  CHECK(named("axolotl.integrations.kd.KDPlugin") == "KDPlugin");
  for (const char* other : {"axolotl.integrations.liger.Other", "my.liger.LigerPlugin", "LigerPlugin",
                            "axolotl.integrations.ligerX.LigerPlugin", "axolotl.integrations."})
    CHECK(named(other).empty());
}

TEST_CASE("keys of a plugin are names, or families") {
  const auto owner = [](std::string_view key) {
    std::string out;
    for (const Plugin& plugin : plugins())
      if (is_key_of(key, plugin)) out += plugin.class_name;
    return out;
  };
  CHECK(owner("use_swanlab") == "SwanLabPlugin");
  CHECK(owner("swanlab_project") == "SwanLabPlugin");
  CHECK(owner("use_scattermoe") == "KernelsPlugin");
  CHECK(owner("use_scattermoe_x").empty());
  CHECK(owner("nvfp4_merge_aware_start_step") == "KernelsPlugin");
  CHECK(owner("learning_rate").empty());
}
