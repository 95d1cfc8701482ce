// SAPO: soft adaptive policy optimization, a smooth gate on the importance ratio in place of the clip.
//
//   J(θ) = E [ 1/G Σ_i 1/|o_i| Σ_t f(c_it)·A_i ],   f(c) = σ( τ·(c − 1) )·4/τ,   τ = τ_pos where A_i > 0, else τ_neg
//   c_it = π_θ(o_it | q, o_i<t) / π_old(o_it | q, o_i<t),   A_i = (R_i − mean_group R) / (std_group R + 1e-4)
//
// Source: Gao et al., "Soft Adaptive Policy Optimization", arXiv 2511.20347, eq. 5 and 6.
// Symbols: G → run.rollouts.geometry.num_generations, τ → method.gate.temperature_positive and _negative, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over the tokens of a completion, then over all completions of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/sapo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: denominators are counts of the step, not of a micro-batch (docs/departures.md).
#pragma once

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sapo.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, advantage::Scale scale = advantage::Scale::group>
struct BasicSapo {
  using Loss = loss::PolicyGradient<loss::Sapo, loss::TokenRatio, Kl, loss::SequenceMean>;
  using Estimator = advantage::GroupRelative<scale>;
  using Aggregation = aggregation::SumThenNormalize;

  struct Config {
    loss::Sapo::Config gate{};
    typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
    advantage::GroupRelativeConfig advantage{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {Loss({.surrogate = c.gate, .ratio = {}, .kl = c.kl, .reduction = {}}), Estimator(c.advantage), {}};
  }
};
using Sapo = BasicSapo<>;

}  // namespace rlalgo
