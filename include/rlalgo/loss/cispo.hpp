// CISPO: the score function weighted by the capped importance ratio. No token loses its gradient.
//
//   p = −sg(min(c, ε_high))·A·x
//
// Source: MiniMax-M1 (arXiv 2506.13585, eq. 4 and 5); TRL's loss_type "cispo". The cap is ε_high itself, not 1 + ε_high
// (as in TRL: its default 0.2 makes every weight at most 0.2; ScaleRL uses about 5), and there is no lower bound. The
// value is a score function: only its gradient means something. Meant for GlobalTokenCount.
//
// Metric: cispo_clip_ratio, share of ratios with c > ε_high and A > 0, over tokens or rows as the ratio.
#pragma once

#include <rlalgo/loss/detail/clip_metrics.hpp>
#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct Cispo {
  struct Config {
    double epsilon_high = 0.2;
  };

  Cispo() = default;
  explicit Cispo(Config config) : config_(config) {}

  Tensor operator()(const PolicyTerms& terms, Metrics& metrics) const {
    const Tensor ratio = terms.ratio.detach();
    const Tensor weight = terms.per_token(ratio.clamp_max(config_.epsilon_high));  // [N]
    const Tensor capped = ratio.gt(config_.epsilon_high).logical_and(terms.advantage.gt(0));
    detail::mean_metric("cispo_clip_ratio", capped.to(ratio.scalar_type()), terms, metrics);
    return weight.mul(terms.token_advantage).mul(terms.log_prob).neg();
  }

 private:
  Config config_;
};

}  // namespace rlalgo::loss
