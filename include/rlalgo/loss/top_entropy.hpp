// Trains only on the tokens where the policy was least sure: the top share by entropy.
//
//   threshold = quantile_{1 − share}( H_t : m_t = 1 ), linear interpolation
//   w_t       = 1 if m_t = 1 and H_t ≥ threshold, else 0
//
// Multiplies the surrogate's loss per token; the KL term keeps all tokens, denominators stay. No gradient. The quantile
// is of the micro-batch, whose tokens are all that is known then: a method that, as BNPO, is defined per micro-batch.
// Source: Wang et al., "Beyond the 80/20 Rule" (arXiv 2506.01939); TRL's top_entropy_quantile.
#pragma once

#include <rlalgo/loss/policy_terms.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::loss {

// w as [N]: 1 for the loss tokens with the highest entropy, `share` of them.
[[nodiscard]] inline Tensor top_entropy(const Scored& s, double share) {
  const Tensor entropy = s.entropy.detach();
  const Tensor valid = s.mask.ne(0);
  const Tensor candidates = entropy.masked_select(valid);
  if (candidates.numel() == 0) return tensor::zeros_like(s.mask);
  const Tensor threshold = candidates.quantile(1.0 - share);
  return entropy.ge(threshold).logical_and(valid).to(s.mask.scalar_type());
}

struct TopEntropy {
  struct Config {
    double share = 0.2;  // of the tokens, in [0, 1]; 1 keeps all
  };
  static constexpr Needs needs{};

  TopEntropy() = default;
  explicit TopEntropy(Config config) : config_(config) {}

  // [N]
  Tensor operator()(const PolicyTerms& terms, Metrics& /*metrics*/) const {
    return top_entropy(terms.scored, config_.share);
  }

 private:
  Config config_;
};

}  // namespace rlalgo::loss
