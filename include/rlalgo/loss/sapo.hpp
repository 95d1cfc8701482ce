// SAPO: a smooth gate on the importance ratio instead of a clip.
//
//   p = −A·σ(τ(c − 1))·4/τ,   τ = τ_positive if A > 0, else τ_negative
//
// Source: Soft Adaptive Policy Optimization (Gao et al., arXiv 2511.20347, eq. 5 and 6); TRL's loss_type "sapo". At c =
// 1 the gate's slope is 1. Meant for SequenceMean. No metrics of its own.
#pragma once

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct Sapo {
  struct Config {
    double temperature_positive = 1.0;   // τ for A > 0
    double temperature_negative = 1.05;  // τ for A ≤ 0
  };

  Sapo() = default;
  explicit Sapo(Config config) : config_(config) {}

  Tensor operator()(const PolicyTerms& terms, Metrics&) const {
    const Tensor positive = terms.advantage.gt(0).to(terms.ratio.scalar_type());
    const Tensor temperature = positive.mul(config_.temperature_positive - config_.temperature_negative)
                                   .add(config_.temperature_negative);  // like ratio
    const Tensor gate = terms.ratio.sub(1.0).mul(temperature).sigmoid().mul(4.0).div(temperature);
    return terms.per_token(gate.mul(terms.advantage).neg());  // [N]
  }

 private:
  Config config_;
};

}  // namespace rlalgo::loss
