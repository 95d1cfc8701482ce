// VESPO: the score function weighted by a gamma-shaped function of the whole sequence's importance weight.
//
//   p = −sg(φ_i)·A·x,   φ = exp(λ + κ·s − λ·e^s)   (φ = 1 on-policy)
//   s_i = clamp(Σ_t m clamp(ℓ, ±20), ln 1e-8, 20)
//   with the ratio ρ between generator and trainer (SamplingCorrection):  s_i += Σ clamp(ln ρ, ln 1e-8, 20), then clamped
//   (κ, λ) = (k_positive, lambda_positive) if A ≥ 0, else (k_negative, lambda_negative)
//
// Source: TRL's loss_type "vespo" (get_gamma_weights). A φ that is not finite counts as 0. The weight is of the
// sequence whatever the ratio level, so only TokenRatio composes with it. The value is a score function: only its
// gradient means something. Meant for GlobalTokenCount.
//
// Metric: vespo/phi_seq_mean, the mean φ over rows.
#pragma once

#include <algorithm>
#include <cmath>

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct Vespo {
  struct Config {
    double k_positive = 2.0;
    double lambda_positive = 3.0;
    double k_negative = 3.0;
    double lambda_negative = 2.0;
  };
  static constexpr Hooks hooks{.ignores_ratio = true, .takes_sampling_ratio = true};
  [[nodiscard]] static constexpr bool takes_sampling_ratio() { return true; }

  Vespo() = default;
  explicit Vespo(Config config) : config_(config) {}

  Tensor operator()(const PolicyTerms& terms, Metrics& metrics) const {
    const Tensor log_ratio = terms.log_ratio.detach().clamp(-20.0, 20.0);
    Tensor s = tensor::row_sum(log_ratio, terms.scored.row, terms.rows());  // [R]
    if (terms.sampling_ratio.defined()) s = s.add(sampling_part(terms));
    s = s.clamp(std::log(1e-8), 20.0);
    const Tensor positive = terms.scored.advantage.ge(0).to(s.scalar_type());
    const auto choose = [&](double if_positive, double otherwise) {
      return positive.mul(if_positive - otherwise).add(otherwise);
    };
    const Tensor k = choose(config_.k_positive, config_.k_negative);
    const Tensor lambda = choose(std::max(config_.lambda_positive, 1e-4), std::max(config_.lambda_negative, 1e-4));
    const Tensor phi = lambda.add(k.mul(s)).sub(lambda.mul(s.exp())).exp().nan_to_num(0.0, 0.0, 0.0);  // [R]
    metrics.mean("vespo/phi_seq_mean", phi.sum(), terms.rows());
    return tensor::spread(phi, terms.scored.row).mul(terms.token_advantage).mul(terms.log_prob).neg();
  }

 private:
  // Σ clamp(ln ρ) per row; a ratio per row stands for itself.
  static Tensor sampling_part(const PolicyTerms& terms) {
    const Tensor log_ratio = terms.sampling_ratio.log().clamp(std::log(1e-8), 20.0);
    return terms.sampling_unit == Unit::row
               ? log_ratio
               : tensor::row_sum(tensor::masked(log_ratio, terms.scored.mask), terms.scored.row, terms.rows());
  }

  Config config_;
};

}  // namespace rlalgo::loss
