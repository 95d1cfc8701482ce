// No estimator: the advantage of a completion is its reward.
//
//   A_i = R_i
//
// For rewards that are advantages already (a critic's, a teacher's). rewards [N] double; advantage [N]; spread [N] is
// the standard deviation of the group's rewards (it scales nothing, it tells constant groups). NaN reward: advantage 0.
// ±inf is clamped to ± the largest float.
#pragma once

#include <cstddef>
#include <span>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/moments.hpp>

namespace rlalgo::advantage {

struct PassThrough {
  struct Config {};
  PassThrough() = default;
  explicit PassThrough(Config /*config*/) {}
  static constexpr Hooks hooks{.within_groups = true};
  [[nodiscard]] static constexpr bool within_groups() noexcept { return true; }

  Estimate operator()(std::span<const double> rewards, const core::Groups& groups) const {
    Estimate out;
    for (const double reward : rewards) out.advantage.push_back(core::finite_advantage(reward));
    out.spread.assign(rewards.size(), 0.0);
    for (const core::Span group : groups) {
      const core::Moments moments = core::moments(rewards.subspan(group.begin, group.size()));
      for (std::size_t i = group.begin; i < group.end; ++i) out.spread[i] = group.size() == 1 ? 0.0 : moments.deviation;
    }
    return out;
  }
};

static_assert(AdvantageEstimator<PassThrough>);

}  // namespace rlalgo::advantage
