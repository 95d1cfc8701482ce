// The k3 estimate of KL(policy ‖ reference) in the loss, with gradient.
//
//   k = exp(f − x) − (f − x) − 1 ≥ 0;   with bias_correction k ← k·c, the unclipped ratio, its gradient included
//
// Source: Schulman, "Approximating KL Divergence" (2020), k3; GRPO (Shao et al., arXiv 2402.03300, eq. 4); the
// correction for samples of the old policy: DeepSeek-V3.2 (arXiv 2512.02556), TRL's use_bias_correction_kl. β·k is
// added to every loss token after the surrogate and is reduced like it.
//
// Departure: TRL ≥ 1.16 corrects by default; here it is off unless asked for, as in axolotl's TRL.
//
// Metric: kl, the mean of k (after correction) over the loss tokens of the whole batch, nats.
// Errors: [rlalgo.loss.2] the batch has no reference log-probs.
#pragma once

#include <rlalgo/core/error.hpp>
#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct K3Kl {
  struct Config {
    double beta = 0.04;
    bool bias_correction = false;
  };
  static constexpr bool needs_reference = true;

  K3Kl() = default;
  explicit K3Kl(Config config) : config_(config) {}

  Tensor operator()(const Tensor& per_token, const PolicyTerms& terms, Metrics& metrics) const {
    const Scored& s = terms.scored;
    if (!s.reference_log_prob.defined())
      core::raise("loss", 2,
                  {.what = "a KL penalty needs reference log-probs, and the batch has none",
                   .remedy = "give the trainer a reference, or set beta to 0"});
    const Tensor difference = tensor::masked(s.reference_log_prob.sub(s.log_prob), s.mask);  // [N] f − x
    Tensor k = difference.exp().sub(difference).sub(1.0);
    if (config_.bias_correction) k = k.mul(terms.per_token(terms.ratio));
    metrics.mean("kl", k.detach().mul(s.mask).sum(), s.mask.sum());
    return per_token.add(k, config_.beta);
  }

 private:
  Config config_;
};

}  // namespace rlalgo::loss
