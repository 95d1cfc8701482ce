// Leave-one-out advantage: the baseline of a completion is the mean reward of the other completions of its prompt.
//
//   A_i = R_i − (Σ_group R − R_i)/(s − 1) = s/(s − 1)·(R_i − mean(group of i)),   s = scorable samples of the group
//   optionally  A ← (A − mean(A)) / (std₁(A) + ε)  over the scorable samples of the batch
//
// Source: Ahmadian et al., "Back to Basics: Revisiting REINFORCE-Style Optimization", arXiv 2402.14740, eq. (7); Kool
// et al. 2019; TRL `RLOOConfig.normalize_advantages` for the second line. rewards [N] double; advantage [N]; spread [N]
// is the standard deviation of the group's rewards (it scales nothing, it tells constant groups). NaN reward: advantage
// 0, no influence on others. s = 1: advantage 0. ±inf is clamped to ± the largest float.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/moments.hpp>

namespace rlalgo::advantage {

class LeaveOneOut {
 public:
  struct Config {
    bool normalize = false;  // whiten over the batch
    double epsilon = 1e-4;   // added to the standard deviation of that
  };

  LeaveOneOut() = default;
  explicit LeaveOneOut(Config config) : config_(config) {}
  [[nodiscard]] const Config& config() const noexcept { return config_; }
  static constexpr Hooks hooks{.within_groups = true};
  [[nodiscard]] bool within_groups() const noexcept { return !config_.normalize; }

  Estimate operator()(std::span<const double> rewards, const core::Groups& groups) const {
    Estimate out;
    out.advantage.assign(rewards.size(), std::numeric_limits<double>::quiet_NaN());
    out.spread.assign(rewards.size(), 0.0);
    for (const core::Span group : groups) {
      const core::Moments moments = core::moments(rewards.subspan(group.begin, group.size()));
      const auto s = static_cast<double>(moments.count);
      for (std::size_t i = group.begin; i < group.end; ++i) {
        if (moments.count > 1) out.advantage[i] = s / (s - 1.0) * (rewards[i] - moments.mean);
        out.spread[i] = group.size() == 1 ? 0.0 : moments.deviation;
      }
    }
    if (config_.normalize) {
      const core::Moments moments = core::moments(out.advantage);
      for (double& a : out.advantage) a = (a - moments.mean) / (moments.deviation + config_.epsilon);
    }
    for (double& a : out.advantage) a = core::finite_advantage(a);
    return out;
  }

 private:
  Config config_;
};

static_assert(AdvantageEstimator<LeaveOneOut>);

}  // namespace rlalgo::advantage
