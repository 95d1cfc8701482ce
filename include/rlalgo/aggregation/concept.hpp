// What an aggregation is: several reward functions become one advantage per sample, with the help of an estimator.
//
// It is a higher-order policy: `SumThenNormalize` estimates on the weighted sum, GDPO's `NormalizeThenSum` estimates
// per function and sums afterwards. It never looks inside the estimator.
#pragma once

#include <concepts>
#include <span>
#include <vector>

#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/hooks.hpp>
#include <rlalgo/core/reward_table.hpp>

namespace rlalgo::aggregation {

struct Result {
  std::vector<double> advantage{};  // [samples]; always finite
  std::vector<double> reward{};     // [samples] weighted sum Σ_k w_k·R_k, NaN when unscorable
  std::vector<double> spread{};     // [samples] see advantage::Estimate::spread
};

// Generic over the estimator type: aggregation depends on no estimator, only on its call.
template <class G, class A>
concept AggregationFor = requires(const G& aggregation, const A& estimator, const core::RewardTable& rewards,
                                  const core::Groups& groups) {
  { aggregation(estimator, rewards, groups) } -> std::same_as<Result>;
};

// Optional members of an aggregation (core/hooks.hpp):
struct Hooks {
  // bool needs_divergence() const, and a fourth argument of the call, [samples] nats: the divergence of each sample from the
  // reference, Σ_t (o − f), is taken into its reward
  bool needs_divergence = false;
  bool within_groups = false;  // bool within_groups() const
};

template <class G>
[[nodiscard]] constexpr Hooks hooks_of() {
  constexpr Hooks declared = core::declared_hooks<G, Hooks>();
  RLALGO_HOOK(
      needs_divergence, requires(const G& aggregation) { aggregation.needs_divergence(); });
  RLALGO_HOOK(
      within_groups, requires(const G& aggregation) { aggregation.within_groups(); });
  return declared;
}

// Whether it takes the divergence of each sample.
template <class G>
[[nodiscard]] bool needs_divergence(const G& aggregation) {
  if constexpr (hooks_of<G>().needs_divergence)
    return aggregation.needs_divergence();
  else
    return false;
}

// Whether it adds nothing to an estimator of single groups (advantage::within_groups) that another group would change.
template <class G>
[[nodiscard]] bool within_groups(const G& aggregation) {
  if constexpr (hooks_of<G>().within_groups)
    return aggregation.within_groups();
  else
    return false;
}

template <class G, class A>
[[nodiscard]] Result aggregate(const G& aggregation, const A& estimator, const core::RewardTable& rewards,
                               const core::Groups& groups, std::span<const double> divergence) {
  if constexpr (hooks_of<G>().needs_divergence)
    return aggregation(estimator, rewards, groups, divergence);
  else
    return aggregation(estimator, rewards, groups);
}

}  // namespace rlalgo::aggregation
