// The names under `reward_funcs` of a config → reward functions: built-in or from the user's Python files.
//
// `builtin.<name>` is built in. `module.function` is Python when a search path holds module.py or a package module/
// (for a dotted module: its first part); else `rewards.<name>` and `gsm8k_grpo.<name>` may name a built-in; else it is
// left to Python's own import (an installed package), which reports what is missing. Errors: [rlalgo.remote.*] see
// python_worker.hpp; [rlalgo.remote.9] (usage) a name that is neither.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/remote/python_worker.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/reward/registry.hpp>

namespace rlalgo::remote {

[[nodiscard]] inline bool module_exists(const std::string& function, const std::vector<std::filesystem::path>& paths) {
  const std::string module = function.substr(0, function.find('.'));
  std::error_code ignored_absence;
  for (const auto& path : paths)
    if (std::filesystem::is_regular_file(path / (module + ".py"), ignored_absence) ||
        std::filesystem::is_directory(path / module, ignored_absence))
      return true;
  return false;
}

[[nodiscard]] inline std::vector<std::shared_ptr<reward::RewardFunction>> make_reward_functions(
    const std::vector<std::string>& names, PythonConfig python, const reward::BuiltinOptions& builtin) {
  if (python.search_paths.empty()) python.search_paths.push_back(std::filesystem::current_path());
  std::vector<std::shared_ptr<reward::RewardFunction>> out;
  std::shared_ptr<PythonWorker> worker;
  for (const std::string& name : names) {
    if (name.starts_with("builtin.") || (!module_exists(name, python.search_paths) && reward::is_builtin(name))) {
      out.push_back(reward::make_builtin(name, builtin));
      continue;
    }
    if (name.find('.') == std::string::npos)
      core::raise_usage(
          "remote", 9,
          {.what = "a reward function needs a module",
           .found = name,
           .expected = "module.function of a Python file beside the config, or one of " + reward::builtin_names()});
    if (!worker) worker = std::make_shared<PythonWorker>(python);
    out.push_back(std::make_shared<PythonReward>(worker, name));
  }
  return out;
}

}  // namespace rlalgo::remote
