// The clipped surrogate of PPO and GRPO, with separate bounds, and an optional bound on the unclipped branch.
//
//   c' = min(c, δ) if δ is set, else c;   p = −min( c'·A, clip(c, 1 − ε_low, 1 + ε_high)·A )
//
// Source: PPO (Schulman et al., arXiv 1707.06347, eq. 7); ε_high: DAPO (Yu et al., arXiv 2503.14476, "clip-higher");
// δ: INTELLECT-2 (Prime Intellect, arXiv 2505.07291, two-sided clipping), which bites only for A < 0 and c > δ.
//
// Metrics (TRL's names and definitions; the ratio compared is c', as in TRL):
//   clip_ratio/low_mean     share of ratios with c' < 1 − ε_low and A < 0: over loss tokens, or over rows for a ratio
//                           per row (rows without loss tokens included)
//   clip_ratio/high_mean    the same for c' > 1 + ε_high and A > 0;  clip_ratio/region_mean  either of the two
//   clip_ratio/low_min      smallest low share of one completion, clip_ratio/high_max largest high share; completions
//                           without loss tokens are left out where the ratio is per token
#pragma once

#include <optional>

#include <rlalgo/loss/detail/clip_metrics.hpp>
#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct ClippedRatio {
  struct Config {
    double epsilon_low = 0.2;
    double epsilon_high = 0.2;
    std::optional<double> delta{};  // > 1 + epsilon_high to have an effect of its own
  };

  ClippedRatio() = default;
  explicit ClippedRatio(Config config) : config_(config) {}

  Tensor operator()(const PolicyTerms& terms, Metrics& metrics) const {
    const double low = 1.0 - config_.epsilon_low, high = 1.0 + config_.epsilon_high;
    const Tensor bounded = config_.delta ? terms.ratio.clamp_max(*config_.delta) : terms.ratio;
    const Tensor clipped = terms.ratio.clamp(low, high);
    const Tensor loss = bounded.mul(terms.advantage).minimum(clipped.mul(terms.advantage)).neg();
    detail::clip_metrics(bounded.detach().lt(low).logical_and(terms.advantage.lt(0)),
                         bounded.detach().gt(high).logical_and(terms.advantage.gt(0)), terms, metrics);
    return terms.per_token(loss);  // [N]
  }

 private:
  Config config_;
};

}  // namespace rlalgo::loss
