// Several reward functions, one advantage: estimate on each function alone, weight and sum, then whiten over the batch.
//
//   z_k = estimator(R_·k);   Q_i = Σ_k w_k·z_ik;   A_i = (Q_i − mean(Q)) / (std₁(Q) + ε)
//
// Source: GDPO, "Group reward-Decoupled Normalization Policy Optimization" (Liu et al., 2026) with the group-relative
// estimator; TRL `multi_objective_aggregation="normalize_then_sum"`. rewards [N, K] double with weights [K]; advantage,
// reward, spread [N]; spread is std₁(Q) for every sample, so frac_reward_zero_std is 0 or 1.
// A sample to which no function applies takes no part in mean(Q) and std₁(Q) and has advantage 0; a function with one
// valid value in a group contributes 0 there. Groups of one sample each (evaluation) have spread 0.
// With one function of weight 1 this is the group-relative advantage times one factor ≥ 1 per batch, not the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/moments.hpp>
#include <rlalgo/core/reward_table.hpp>

namespace rlalgo::aggregation {

class NormalizeThenSum {
 public:
  struct Config {
    double epsilon = 1e-4;  // added to the standard deviation of the last step
  };

  NormalizeThenSum() = default;
  explicit NormalizeThenSum(Config config) : config_(config) {}
  [[nodiscard]] const Config& config() const noexcept { return config_; }

  template <class Estimator>
  Result operator()(const Estimator& estimator, const core::RewardTable& rewards, const core::Groups& groups) const {
    const std::size_t n = rewards.rows();
    Result out;
    out.reward.resize(n);
    std::vector<double> sum(n, 0.0);  // Q
    for (std::size_t i = 0; i < n; ++i) {
      out.reward[i] = rewards.weighted_sum(i);
      if (std::isnan(out.reward[i])) sum[i] = std::numeric_limits<double>::quiet_NaN();
    }
    std::vector<double> column(n);
    for (std::size_t k = 0; k < rewards.columns(); ++k) {
      for (std::size_t i = 0; i < n; ++i) column[i] = rewards(i, k);
      const auto estimate = estimator(std::span<const double>(column), groups);
      for (std::size_t i = 0; i < n; ++i) sum[i] += rewards.weights()[k] * estimate.advantage[i];
    }
    const core::Moments moments = core::moments(sum);
    const bool singles = std::all_of(groups.begin(), groups.end(), [](core::Span g) { return g.size() == 1; });
    const double spread = singles ? 0.0 : moments.deviation;
    out.advantage.resize(n);
    for (std::size_t i = 0; i < n; ++i)
      out.advantage[i] = core::finite_advantage((sum[i] - moments.mean) / (spread + config_.epsilon));
    out.spread.assign(n, spread);
    return out;
  }

 private:
  Config config_;
};

}  // namespace rlalgo::aggregation
