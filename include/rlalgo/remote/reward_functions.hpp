// The names under `reward_funcs` of a config → reward functions: built-in or from the user's Python files.
//
// TRL's names without a module and `builtin.<name>` are built in. `module.function` is the user's where a file of theirs
// has it (user_function.hpp); else `rewards.<name>`, `gsm8k_grpo.<name>` and `trl.rewards.<name>` may name a built-in,
// which is noted; else it is left to Python's own import (an installed package), which reports what is missing. `kwargs` (trl.reward_kwargs) are the parameters of a built-in, or keywords that a Python
// function gets besides its other arguments, by the name under reward_funcs or the function's last part.
// Errors: [rlalgo.remote.*] see python_worker.hpp; (usage) [rlalgo.remote.9] a name that is neither, [rlalgo.remote.12]
// parameters for a reward that is not used.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/remote/reward_pool.hpp>
#include <rlalgo/reward/failure_policy.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/reward/registry.hpp>

namespace rlalgo::remote {

struct RewardSettings {
  PoolConfig pool = {};
  std::int64_t max_completion_length = 512;      // the default of built-ins that know a greatest length
  reward::Json kwargs = reward::Json::object();  // reward → its parameters
  reward::OnFailure on_failure = reward::OnFailure::error;
  std::function<void(const std::string&)> note = {};  // is given a line about each built-in that has a module's name
};

namespace detail {

// The parameters of `name`: under its full name, its last part, or the name of the built-in that it means.
reward::Json parameters_of(const std::string& name, const reward::Json& all, std::set<std::string>& used);

}  // namespace detail

[[nodiscard]] std::vector<std::shared_ptr<reward::RewardFunction>> make_reward_functions(
    const std::vector<std::string>& names, RewardSettings settings = {});

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/reward_functions_impl.hpp>
#endif
