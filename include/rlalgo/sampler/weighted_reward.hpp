// A reward function and its weight in the sum: a function object, or any callable that a reward can be made of.
//
//   std::vector<sampler::WeightedReward> rewards = {
//       [](const std::string& text) { return text.size() < 40 ? 1.0 : 0.0; },   // named "reward" in metrics
//       {"right", [](const std::string& text, const reward::Json& columns) { return text == columns["answer"]; }, 0.5},
//       {std::make_shared<MyReward>(), 2.0}};
//
// Forms of a callable: reward/functor.hpp. Several without a name are "reward_1", "reward_2", … by their places.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/reward/function.hpp>
#include <rlalgo/reward/functor.hpp>

namespace rlalgo::sampler {

struct WeightedReward {
  WeightedReward() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a function is a reward of weight 1
  WeightedReward(std::shared_ptr<reward::RewardFunction> of, double times = 1.0)
      : function(std::move(of)), weight(times) {}
  template <reward::RewardFunctor F>
  // NOLINTNEXTLINE(google-explicit-constructor): so is a callable
  WeightedReward(F callable, double times = 1.0) : weight(times), named(std::derived_from<F, reward::RewardFunction>) {
    static_assert(
        std::derived_from<F, reward::RewardFunction> || !requires { callable.name(); },
        "a callable with a name() is a reward::RewardFunction: derive from it, or write the name in front of the "
        "callable, {\"right\", callable}");
    if constexpr (std::derived_from<F, reward::RewardFunction>)
      function = std::make_shared<F>(std::move(callable));
    else
      function = reward::from("reward", std::move(callable));
  }
  template <reward::RewardFunctor F>
  WeightedReward(std::string name, F callable, double times = 1.0)
      : function(reward::from(std::move(name), std::move(callable))), weight(times) {}

  std::shared_ptr<reward::RewardFunction> function{};
  double weight = 1.0;
  bool named = true;  // by its function; else by its place
};

// The name of each, by which metrics call it.
[[nodiscard]] inline std::vector<std::string> reward_names(std::span<const WeightedReward> rewards) {
  std::size_t unnamed = 0;
  for (const WeightedReward& reward : rewards) unnamed += reward.named ? 0 : 1;
  std::vector<std::string> names;
  for (const WeightedReward& reward : rewards)
    names.push_back(reward.named || unnamed < 2 ? reward.function->name()
                                                : reward.function->name() + "_" + std::to_string(names.size() + 1));
  return names;
}

}  // namespace rlalgo::sampler
