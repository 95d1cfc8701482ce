// Drops the completions with negative advantage that the policy has moved away from.
//
//   D_i = Σ_t m (b − x) / max(n_i, 1),   b: the generator's log-probs where known, else the old ones
//   w_i = 1 if A_i ≥ 0 or D_i ≤ threshold, else 0
//
// Multiplies the surrogate's loss per token; denominators stay. No gradient.
// Source: DeepSeek-V3.2 (arXiv 2512.02556), off-policy sequence masking; TRL's off_policy_mask_threshold.
#pragma once

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct OffPolicyMask {
  struct Config {
    double threshold = 0.0;  // nats per token
  };
  static constexpr Needs needs{.old_log_prob = true, .sampling_log_prob = true};

  OffPolicyMask() = default;
  explicit OffPolicyMask(Config config) : config_(config) {}

  // [N]
  Tensor operator()(const PolicyTerms& terms, Metrics& /*metrics*/) const {
    const Scored& s = terms.scored;
    const Tensor x = s.log_prob.detach();
    const Tensor old = s.old_log_prob.defined() ? s.old_log_prob : x;
    const Tensor base = s.sampling_log_prob.defined()
                            ? s.sampling_log_prob.where(s.sampling_log_prob.eq(s.sampling_log_prob), old)
                            : old;
    const Tensor moved = tensor::row_sum(tensor::masked(base.sub(x), s.mask), s.row, terms.rows())
                             .div(s.row_length.clamp_min(1.0));  // [R] D
    const Tensor dropped = moved.gt(config_.threshold).logical_and(s.advantage.lt(0));
    return tensor::spread(dropped.logical_not().to(x.scalar_type()), s.row);
  }

 private:
  Config config_;
};

}  // namespace rlalgo::loss
