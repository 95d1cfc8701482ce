// Definitions of reward_functions.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/remote/reward_functions.hpp>
#include <rlalgo/remote/reward_pool.hpp>
#include <rlalgo/remote/user_function.hpp>
#include <rlalgo/reward/failure_policy.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/reward/registry.hpp>

namespace rlalgo::remote {

namespace detail {

RLALGO_INLINE reward::Json parameters_of(const std::string& name, const reward::Json& all,
                                         std::set<std::string>& used) {
  const reward::Builtin* builtin = reward::find_builtin(name);
  for (const std::string& key : {name, name.substr(name.rfind('.') + 1), builtin != nullptr ? builtin->name : name}) {
    const auto found = all.find(key);
    if (found == all.end()) continue;
    used.insert(key);
    return found->is_null() ? reward::Json::object() : *found;
  }
  return reward::Json::object();
}

}  // namespace detail

RLALGO_INLINE std::vector<std::shared_ptr<reward::RewardFunction>> make_reward_functions(
    const std::vector<std::string>& names, RewardSettings settings) {
  PythonConfig& python = settings.pool.python;
  if (python.search_paths.empty()) python.search_paths.push_back(std::filesystem::current_path());
  std::vector<std::shared_ptr<reward::RewardFunction>> out;
  std::shared_ptr<RewardPool> pool;
  std::set<std::string> used;
  const auto add = [&](std::shared_ptr<reward::RewardFunction> function) {
    if (settings.on_failure != reward::OnFailure::error)
      function = std::make_shared<reward::Guarded>(std::move(function), settings.on_failure);
    out.push_back(std::move(function));
  };
  for (const std::string& name : names) {
    reward::Json parameters = detail::parameters_of(name, settings.kwargs, used);
    const bool bare = name.find('.') == std::string::npos;
    const bool ours = bare || name.starts_with("builtin.");  // no file of the user's is meant
    if (name.starts_with("builtin.") ||
        (reward::is_builtin(name) && (ours || !user_has(name, python.search_paths, python.python)))) {
      if (!ours && settings.note)
        settings.note("the reward " + name + " is the built-in one: " + absent_in(name, python.search_paths));
      add(reward::make_builtin(
          name, {.max_completion_length = settings.max_completion_length, .arguments = std::move(parameters)}));
      continue;
    }
    if (bare)
      core::raise_usage(
          "remote", 9,
          {.what = "a reward function needs a module",
           .found = name,
           .expected = "module.function of a Python file beside the config, or one of " + reward::builtin_names()});
    if (!pool) pool = std::make_shared<RewardPool>(settings.pool);
    add(std::make_shared<PythonReward>(pool, name, std::move(parameters)));
  }
  for (const auto& [name, parameters] : settings.kwargs.items())
    if (!used.contains(name))
      core::raise_usage("remote", 12,
                        {.what = "trl.reward_kwargs has parameters for a reward that is not under trl.reward_funcs",
                         .found = name,
                         .remedy = "add it to trl.reward_funcs, or remove its parameters"});
  return out;
}

}  // namespace rlalgo::remote
