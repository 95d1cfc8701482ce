// CISPO: clipped importance-sampling weights; every token keeps its gradient.
//
//   J(θ) = E [ 1/Σ_i |o_i| Σ_i Σ_t sg( min(c_it, ε_high) )·A_i·log π_θ(o_it | q, o_i<t) ]
//   c_it = π_θ(o_it | q, o_i<t) / π_old(o_it | q, o_i<t),   A_i = (R_i − mean_group R) / (std_group R + 1e-4)
//
// Source: MiniMax, "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention", arXiv 2506.13585, eq.
// 4 and 5; the cap 5 is ScaleRL's (Khatri et al., arXiv 2510.13786).
// Symbols: G → run.rollouts.geometry.num_generations, ε_high → method.cap.epsilon_high, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over all loss tokens of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/cispo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: TRL's default cap is epsilon = 0.2, and YAML runs (loss_type: cispo) follow TRL.
#pragma once

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/cispo.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, advantage::Scale scale = advantage::Scale::group>
struct BasicCispo {
  using Loss = loss::PolicyGradient<loss::Cispo, loss::TokenRatio, Kl, loss::GlobalTokenCount>;
  using Estimator = advantage::GroupRelative<scale>;
  using Aggregation = aggregation::SumThenNormalize;

  struct Config {
    loss::Cispo::Config cap{.epsilon_high = 5.0};
    typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
    advantage::GroupRelativeConfig advantage{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {Loss({.surrogate = c.cap, .ratio = {}, .kl = c.kl, .reduction = {}}), Estimator(c.advantage), {}};
  }
};
using Cispo = BasicCispo<>;

}  // namespace rlalgo
