// What an advantage estimator is: the rewards of a batch, group by group, become one advantage per sample.
//
// Host code, double precision, no torch. NaN reward = unscorable sample: advantage 0, no influence on others.
#pragma once

#include <concepts>
#include <span>
#include <vector>

#include <rlalgo/core/groups.hpp>

namespace rlalgo::advantage {

struct Estimate {
  std::vector<double> advantage;  // [samples], unscorable samples 0
  std::vector<double> spread;     // [samples] the standard deviation that scaled the sample (NaN when undefined);
                                  // |spread| ≤ 1e-8 counts in frac_reward_zero_std
};

// An estimator is a value: rewards [samples] and the groups they fall into → Estimate. It must not keep state.
template <class A>
concept AdvantageEstimator = requires(const A& estimator, std::span<const double> rewards, const core::Groups& groups) {
  typename A::Config;
  { estimator(rewards, groups) } -> std::same_as<Estimate>;
};

// Whether the advantage of a sample depends on nothing beyond its own group, so that groups may be estimated one by one.
// An estimator says so with within_groups().
template <class A>
[[nodiscard]] bool within_groups(const A& estimator) {
  if constexpr (requires { estimator.within_groups(); }) return estimator.within_groups();
  return false;
}

}  // namespace rlalgo::advantage
