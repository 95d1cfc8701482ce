// Reward functions by name, with their weights: built-in ones and Python functions (remote/reward_functions.hpp), reward models, those of
// a NeMo Gym, and what environments give.
//
// In C++ a reward is any function of a sample or of a call (reward/function.hpp), and needs no name.
//
// Errors: those of remote/reward_functions.hpp, feature/reward_model.hpp and assembly/model_places.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include <rlalgo/assembly/model_places.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/environment/several.hpp>
#include <rlalgo/feature/reward_model.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/remote/gym_rewards.hpp>
#include <rlalgo/remote/reward_functions.hpp>
#include <rlalgo/reward/column.hpp>
#include <rlalgo/reward/failure_policy.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/sampler/weighted_reward.hpp>

namespace rlalgo::assembly {

struct RewardsConfig {
  std::vector<std::string> names = {};
  std::vector<double> weights = {};          // one for each; empty: all 1
  remote::RewardSettings functions = {};     // how functions are found and called, and what happens when one fails
  std::vector<std::string> of_gym = {};      // of the names: nemo_gym, or nemo_gym.COMPONENT
  data::Json template_kwargs = nullptr;      // of reward models: variables of their chat templates
  at::Device device = at::Device(at::kCPU);  // of reward models
  std::string where = "reward_funcs";        // the place that named them, for error texts
};

// A directory with a config.json, or "organisation/name": module.function has no slash and is no directory.
[[nodiscard]] inline bool names_reward_model(const std::string& name) {
  return name.find('/') != std::string::npos || os::is_regular_file(std::filesystem::path(name) / "config.json");
}

namespace detail {

[[nodiscard]] inline std::shared_ptr<reward::RewardFunction> guarded(std::shared_ptr<reward::RewardFunction> function,
                                                                     reward::OnFailure on_failure) {
  if (on_failure == reward::OnFailure::error) return function;
  return std::make_shared<reward::Guarded>(std::move(function), on_failure);
}

[[nodiscard]] inline std::shared_ptr<reward::RewardFunction> reward_model(const RewardsConfig& c,
                                                                          const std::string& name) {
  const std::filesystem::path directory = resolve_model(name, c.where);
  std::string last = std::filesystem::path(name).lexically_normal().string();
  while (last.ends_with('/')) last.pop_back();
  return guarded(
      std::make_shared<feature::RewardModel>(directory, last.substr(last.rfind('/') + 1), c.template_kwargs, c.device),
      c.functions.on_failure);
}

}  // namespace detail

// Last is what the environments give (null: there are none), with weight 1. `gym`: null where its agents play: then their episodes bring
// its rewards.
[[nodiscard]] inline std::vector<sampler::WeightedReward> weighted_rewards(
    const RewardsConfig& c, const environment::Environments* environments = nullptr,
    const std::shared_ptr<remote::GymVerifier>& gym = nullptr) {
  const auto of_gym = [&](const std::string& name) {
    return std::find(c.of_gym.begin(), c.of_gym.end(), name) != c.of_gym.end();
  };
  std::vector<std::string> names;
  for (const std::string& name : c.names)
    if (!names_reward_model(name) && !of_gym(name)) names.push_back(name);
  auto functions = remote::make_reward_functions(names, c.functions);
  std::vector<sampler::WeightedReward> out;
  for (std::size_t k = 0, next = 0; k < c.names.size(); ++k) {
    const std::string& name = c.names[k];
    std::shared_ptr<reward::RewardFunction> function;
    if (of_gym(name) && gym == nullptr)
      function = reward::column(name, name == "nemo_gym" ? "environment_reward" : name);
    else if (of_gym(name))
      function = std::make_shared<remote::GymReward>(gym, name == "nemo_gym" ? "" : name.substr(9));
    else
      function = names_reward_model(name) ? detail::reward_model(c, name) : functions[next++];
    out.push_back({std::move(function), c.weights.empty() ? 1.0 : c.weights[k]});
  }
  if (environments != nullptr)
    for (const environment::RewardName& given : environments->rewards())
      out.push_back({detail::guarded(
          reward::column(given.name, "environment_reward",
                         given.environments.empty() ? reward::RowsOf()
                                                    : reward::RowsOf{environment::Several::column, given.environments}),
          c.functions.on_failure)});
  return out;
}

}  // namespace rlalgo::assembly
