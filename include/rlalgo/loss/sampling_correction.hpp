// Corrects for a generator whose log-probs differ from the trainer's: truncated or masked importance weights.
//
//   d_t = m (o_t − q_t),   o: old log-probs by the trainer's own scoring, q: as the generator reported them
//   token: ρ_t = exp(d_t);   sequence: ρ_i = exp(Σ_t d_t)
//   truncate: ρ ← clamp(ρ, minimum, maximum);   mask: ρ ← 0 outside [minimum, maximum], else unchanged
//
// Multiplies the surrogate's loss per token, not the KL term. No gradient.
// Source: Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (2025); TRL's
// vllm_importance_sampling_correction, whose defaults these are. A token whose q is NaN (unknown) counts as d = 0.
//
// Metrics: sampling/sampling_logp_difference/{mean,max} of |o − q| over the loss tokens, nats;
// sampling/importance_sampling_ratio/{min,mean,max} of ρ over the loss tokens (token) or rows (sequence), the same
// raw_{min,mean,max} before it is truncated or masked, and bounded_ratio, the share of those that were.
// Errors: [rlalgo.loss.20] the generator reported no log-probs at all.
#pragma once

#include <optional>

#include <rlalgo/core/error.hpp>
#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

enum class CorrectionMode { truncate, mask };

struct SamplingCorrection {
  struct Config {
    Unit unit = Unit::row;
    CorrectionMode mode = CorrectionMode::mask;
    std::optional<double> minimum = std::nullopt;
    std::optional<double> maximum = 3.0;
  };
  static constexpr Needs needs{.old_log_prob = true, .sampling_log_prob = true};
  static constexpr Hooks hooks{.is_sampling_ratio = true, .unit = true};

  SamplingCorrection() = default;
  explicit SamplingCorrection(Config config) : config_(config) {}

  [[nodiscard]] Unit unit() const { return config_.unit; }

  // [N] or [R], as unit() says.
  Tensor operator()(const PolicyTerms& terms, Metrics& metrics) const {
    const Scored& s = terms.scored;
    if (!s.sampling_log_prob.defined())
      core::raise("loss", 20,
                  {.what = "the importance-sampling correction needs the generator's log-probs, and it reported none",
                   .remedy = "set trl.vllm_importance_sampling_correction: false"});
    const Tensor old = s.old_log_prob.defined() ? s.old_log_prob : s.log_prob.detach();
    const Tensor difference = tensor::masked(old.sub(s.sampling_log_prob), s.mask).nan_to_num(0.0);  // [N] d
    const bool per_row = config_.unit == Unit::row;
    const Tensor raw = (per_row ? tensor::row_sum(difference, s.row, terms.rows()) : difference).exp();  // [R] or [N]
    const Tensor ratio = bounded(raw);
    report(difference.abs(), raw, ratio, s, metrics);
    return ratio;
  }

 private:
  [[nodiscard]] Tensor bounded(const Tensor& ratio) const {
    if (config_.mode == CorrectionMode::truncate) {
      Tensor out = ratio;
      if (config_.minimum) out = out.clamp_min(*config_.minimum);
      if (config_.maximum) out = out.clamp_max(*config_.maximum);
      return out;
    }
    Tensor out = ratio;
    if (config_.minimum) out = out.masked_fill(ratio.lt(*config_.minimum), 0.0);
    if (config_.maximum) out = out.masked_fill(ratio.gt(*config_.maximum), 0.0);
    return out;
  }

  void report(const Tensor& difference, const Tensor& raw, const Tensor& ratio, const Scored& s,
              Metrics& metrics) const {
    const auto of_loss = [&](const Tensor& values) {
      return config_.unit == Unit::row ? values : values.masked_select(s.mask.ne(0));
    };
    const Tensor seen = of_loss(ratio), before = of_loss(raw);
    if (seen.numel() == 0 || difference.numel() == 0) return;
    const Tensor tokens = s.mask.sum();  // without any, nothing is reported
    metrics.mean("sampling/sampling_logp_difference/mean", difference.sum(), tokens, tokens);
    metrics.maximum("sampling/sampling_logp_difference/max", difference.max(), tokens);
    metrics.minimum("sampling/importance_sampling_ratio/min", seen.min(), tokens);
    metrics.mean("sampling/importance_sampling_ratio/mean", seen.sum(), seen.numel(), tokens);
    metrics.maximum("sampling/importance_sampling_ratio/max", seen.max(), tokens);
    metrics.minimum("sampling/importance_sampling_ratio/raw_min", before.min(), tokens);
    metrics.mean("sampling/importance_sampling_ratio/raw_mean", before.sum(), before.numel(), tokens);
    metrics.maximum("sampling/importance_sampling_ratio/raw_max", before.max(), tokens);
    metrics.mean("sampling/importance_sampling_ratio/bounded_ratio", before.ne(seen).sum(), before.numel(), tokens);
  }

  Config config_;
};

}  // namespace rlalgo::loss
