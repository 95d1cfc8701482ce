// Several reward functions, one advantage: weight and sum the rewards first, estimate on the sum.
//
//   R_i = Σ_k w_k·R_ik over the functions that apply to sample i;   A = estimator(R)
//
// Source: TRL `multi_objective_aggregation="sum_then_normalize"`, the usual GRPO. rewards [N, K] double with weights
// [K]; advantage, reward, spread [N]. A sample to which no function applies is NaN in R: advantage 0, no influence on
// others.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/reward_table.hpp>

namespace rlalgo::aggregation {

class SumThenNormalize {
 public:
  struct Config {};

  SumThenNormalize() = default;
  explicit SumThenNormalize(Config) {}
  static constexpr Hooks hooks{.within_groups = true};
  [[nodiscard]] static constexpr bool within_groups() noexcept { return true; }

  template <class Estimator>
  Result operator()(const Estimator& estimator, const core::RewardTable& rewards, const core::Groups& groups) const {
    Result out;
    out.reward.resize(rewards.rows());
    for (std::size_t i = 0; i < rewards.rows(); ++i) out.reward[i] = rewards.weighted_sum(i);
    auto estimate = estimator(std::span<const double>(out.reward), groups);
    out.advantage = std::move(estimate.advantage);
    out.spread = std::move(estimate.spread);
    return out;
  }
};

}  // namespace rlalgo::aggregation
