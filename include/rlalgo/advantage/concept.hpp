// What an advantage estimator is: the rewards of a batch, group by group, become one advantage per sample.
//
// Host code, double precision, no torch. NaN reward = unscorable sample: advantage 0, no influence on others.
#pragma once

#include <concepts>
#include <span>
#include <vector>

#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/hooks.hpp>

namespace rlalgo::advantage {

struct Estimate {
  std::vector<double> advantage{};  // [samples], unscorable samples 0
  std::vector<double> spread{};     // [samples] the standard deviation that scaled the sample (NaN when undefined);
                                    // |spread| ≤ 1e-8 counts in frac_reward_zero_std
};

// An estimator is a value: rewards [samples] and the groups they fall into → Estimate. It must not keep state.
template <class A>
concept AdvantageEstimator = requires(const A& estimator, std::span<const double> rewards, const core::Groups& groups) {
  typename A::Config;
  { estimator(rewards, groups) } -> std::same_as<Estimate>;
};

// Optional members of an estimator (core/hooks.hpp):
struct Hooks {
  bool within_groups = false;  // bool within_groups() const
};

template <class A>
[[nodiscard]] constexpr Hooks hooks_of() {
  constexpr Hooks declared = core::declared_hooks<A, Hooks>();
  RLALGO_HOOK(
      within_groups, requires(const A& estimator) { estimator.within_groups(); });
  return declared;
}

// Whether the advantage of a sample depends on nothing beyond its own group, so that groups may be estimated one by one.
template <class A>
[[nodiscard]] bool within_groups(const A& estimator) {
  if constexpr (hooks_of<A>().within_groups)
    return estimator.within_groups();
  else
    return false;
}

}  // namespace rlalgo::advantage
