// What an aggregation is: several reward functions become one advantage per sample, with the help of an estimator.
//
// It is a higher-order policy: `SumThenNormalize` estimates on the weighted sum, GDPO's `NormalizeThenSum` estimates
// per function and sums afterwards. It never looks inside the estimator.
#pragma once

#include <concepts>
#include <span>
#include <vector>

#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/reward_table.hpp>

namespace rlalgo::aggregation {

struct Result {
  std::vector<double> advantage;  // [samples]; always finite
  std::vector<double> reward;     // [samples] weighted sum Σ_k w_k·R_k, NaN when unscorable
  std::vector<double> spread;     // [samples] see advantage::Estimate::spread
};

// Generic over the estimator type: aggregation depends on no estimator, only on its call.
template <class G, class A>
concept AggregationFor = requires(const G& aggregation, const A& estimator, const core::RewardTable& rewards,
                                  const core::Groups& groups) {
  { aggregation(estimator, rewards, groups) } -> std::same_as<Result>;
};

// An aggregation may take the divergence of each sample from the reference, Σ_t (o − f), into its reward: it has
// needs_divergence() and takes a fourth argument, [samples] nats.
template <class G>
[[nodiscard]] bool needs_divergence(const G& aggregation) {
  if constexpr (requires { aggregation.needs_divergence(); }) return aggregation.needs_divergence();
  return false;
}

// Whether it adds nothing to an estimator of single groups (advantage::within_groups) that another group would change.
template <class G>
[[nodiscard]] bool within_groups(const G& aggregation) {
  if constexpr (requires { aggregation.within_groups(); }) return aggregation.within_groups();
  return false;
}

template <class G, class A>
[[nodiscard]] Result aggregate(const G& aggregation, const A& estimator, const core::RewardTable& rewards,
                               const core::Groups& groups, std::span<const double> divergence) {
  if constexpr (requires { aggregation(estimator, rewards, groups, divergence); })
    return aggregation(estimator, rewards, groups, divergence);
  else
    return aggregation(estimator, rewards, groups);
}

}  // namespace rlalgo::aggregation
