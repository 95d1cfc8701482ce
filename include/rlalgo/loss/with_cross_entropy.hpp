// A policy loss and the likelihood of given text, in one pass over both.
//
//   loss = c_rl·L + c_ce·CE,   CE = −Σ x over the tokens of the likelihood term / their number in the step
//
// Source: "Energy-based fine-tuning", arXiv 2603.12248: L_FM + γ·L_CE. The tokens of the likelihood term are answers
// that rows bring, or a document's own: Scored::likelihood_mask, of mask 0, so that L does not see them. Both
// denominators are counts of the step over all micro-batches and ranks; without such tokens CE is 0.
// Shapes: Scored [N] → scalar. Metrics: <prefix>rl_loss and <prefix>ce_loss of the step, without their coefficients,
// nats; those of L.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <rlalgo/loss/concept.hpp>
#include <rlalgo/tensor/masked.hpp>

namespace rlalgo::loss {

template <Loss L>
class WithCrossEntropy {
 public:
  struct Config {
    double policy = 1.0;         // c_rl
    double cross_entropy = 0.0;  // c_ce
    std::string prefix = {};     // of the two metrics
  };
  static constexpr Needs needs = L::needs | Needs{.answer_likelihood = true};
  static constexpr RowKind rows = L::rows;
  static constexpr Hooks hooks{.active_needs = true, .corrects_sampling = true};

  WithCrossEntropy(Config config, L policy) : config_(std::move(config)), policy_(std::move(policy)) {}

  Result operator()(const Scored& scored, const Counts& counts) const {
    Result result = policy_(scored, counts);
    const double part = 1.0 / std::max(counts.micro_batches, 1.0);  // a step's loss is the sum over its parts
    result.metrics.mean(config_.prefix + "rl_loss", result.value.detach(), part);
    result.value = result.value.mul(config_.policy);
    if (!scored.likelihood_mask.defined()) return result;
    const Tensor cross_entropy =
        tensor::masked(scored.log_prob, scored.likelihood_mask).sum().div(-std::max(counts.likelihood_tokens, 1.0));
    result.metrics.mean(config_.prefix + "ce_loss", cross_entropy.detach(), part);
    if (config_.cross_entropy != 0.0) result.value = result.value.add(cross_entropy.mul(config_.cross_entropy));
    return result;
  }

  [[nodiscard]] Needs active_needs() const { return loss::active_needs(policy_) | Needs{.answer_likelihood = true}; }
  [[nodiscard]] bool corrects_sampling() const { return loss::corrects_sampling(policy_); }

 private:
  Config config_;
  L policy_;
};

}  // namespace rlalgo::loss
