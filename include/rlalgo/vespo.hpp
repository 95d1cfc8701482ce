// VESPO: the score function weighted by a gamma-shaped function of the completion's importance weight.
//
//   J(θ) = E [ 1/Σ_i |o_i| Σ_i Σ_t sg( φ_i )·A_i·log π_θ(o_it | q, o_i<t) ]
//   φ_i = exp( λ + κ·s_i − λ·e^{s_i} ),   s_i = log π_θ(o_i | q) − log π_old(o_i | q);   (κ, λ) by the sign of A_i
//   A_i = (R_i − mean_group R) / (std_group R + 1e-4)
//
// Source: TRL's loss_type "vespo" (get_gamma_weights) and its defaults; clamps in loss/vespo.hpp.
// Symbols: G → run.rollouts.geometry.num_generations, κ, λ → method.weight.k_… and lambda_…, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over all loss tokens of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/vespo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: none.
#pragma once

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/vespo.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, advantage::Scale scale = advantage::Scale::group>
struct BasicVespo {
  using Loss = loss::PolicyGradient<loss::Vespo, loss::TokenRatio, Kl, loss::GlobalTokenCount>;
  using Estimator = advantage::GroupRelative<scale>;
  using Aggregation = aggregation::SumThenNormalize;

  struct Config {
    loss::Vespo::Config weight{};
    typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
    advantage::GroupRelativeConfig advantage{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {Loss({.surrogate = c.weight, .ratio = {}, .kl = c.kl, .reduction = {}}), Estimator(c.advantage), {}};
  }
};
using Vespo = BasicVespo<>;

}  // namespace rlalgo
