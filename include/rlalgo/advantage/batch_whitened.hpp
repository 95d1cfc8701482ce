// Whitened advantage: rewards, less the mean of their group if asked for, scaled by the spread of the whole batch.
//
//   B_i = R_i − mean(group of i), or R_i;   A_i = (B_i − mean(B)) / (std₁(B) + ε)
//
// Source: Hu et al., "REINFORCE++", arXiv 2501.03262: with the group baseline its REINFORCE++-baseline, without it the
// original. rewards [N] double; advantage [N]; spread [N] is the standard deviation of the group's rewards with the
// baseline, of the batch's without. NaN reward: advantage 0, no influence on others. ±inf is clamped to ± the largest
// float.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/moments.hpp>

namespace rlalgo::advantage {

class BatchWhitened {
 public:
  struct Config {
    bool group_baseline = true;
    double epsilon = 1e-4;  // added to the standard deviation
  };

  BatchWhitened() = default;
  explicit BatchWhitened(Config config) : config_(config) {}
  [[nodiscard]] const Config& config() const noexcept { return config_; }

  Estimate operator()(std::span<const double> rewards, const core::Groups& groups) const {
    Estimate out;
    out.advantage.assign(rewards.begin(), rewards.end());
    out.spread.assign(rewards.size(), core::moments(rewards).deviation);
    if (config_.group_baseline) {
      for (const core::Span group : groups) {
        const core::Moments moments = core::moments(rewards.subspan(group.begin, group.size()));
        for (std::size_t i = group.begin; i < group.end; ++i) {
          out.advantage[i] -= moments.mean;
          out.spread[i] = group.size() == 1 ? 0.0 : moments.deviation;
        }
      }
    }
    const core::Moments batch = core::moments(out.advantage);
    for (double& a : out.advantage) a = core::finite_advantage((a - batch.mean) / (batch.deviation + config_.epsilon));
    return out;
  }

 private:
  Config config_;
};

static_assert(AdvantageEstimator<BatchWhitened>);

}  // namespace rlalgo::advantage
