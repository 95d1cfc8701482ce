// RLOO's reward: the weighted sum, clipped, minus the policy's divergence from the reference; then one estimate.
//
//   R_i = clamp( Σ_k w_k·R_ik, range ) − β·K_i,   K_i = Σ_t m (o_t − f_t)   (k1, summed; nats, may be negative)
//
// Source: Ahmadian et al., arXiv 2402.14740; TRL RLOOTrainer (`beta`, `reward_clip_range`). The penalty is part of the
// reward: measured when the completion is generated, no gradient. Rewards are reported without clip and penalty.
// A sample to which no function applies stays unscorable.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/reward_table.hpp>

namespace rlalgo::aggregation {

class SumMinusKl {
 public:
  struct Config {
    double beta = 0.05;                                // β; 0: no reference is needed
    std::optional<std::pair<double, double>> range{};  // of the weighted sum
  };

  SumMinusKl() = default;
  explicit SumMinusKl(Config config) : config_(config) {}
  [[nodiscard]] const Config& config() const noexcept { return config_; }
  static constexpr Hooks hooks{.needs_divergence = true, .within_groups = true};
  [[nodiscard]] bool needs_divergence() const noexcept { return config_.beta != 0.0; }
  [[nodiscard]] static constexpr bool within_groups() noexcept { return true; }

  // divergence: K [samples]; empty where it is not needed.
  template <class Estimator>
  Result operator()(const Estimator& estimator, const core::RewardTable& rewards, const core::Groups& groups,
                    std::span<const double> divergence = {}) const {
    Result out;
    out.reward.resize(rewards.rows());
    std::vector<double> scored(rewards.rows());
    for (std::size_t i = 0; i < rewards.rows(); ++i) {
      out.reward[i] = scored[i] = rewards.weighted_sum(i);
      if (config_.range && !std::isnan(scored[i]))
        scored[i] = std::clamp(scored[i], config_.range->first, config_.range->second);
      if (!divergence.empty()) scored[i] -= config_.beta * divergence[i];
    }
    auto estimate = estimator(std::span<const double>(scored), groups);
    out.advantage = std::move(estimate.advantage);
    out.spread = std::move(estimate.spread);
    return out;
  }

 private:
  Config config_;
};

}  // namespace rlalgo::aggregation
