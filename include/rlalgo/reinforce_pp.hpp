// REINFORCE++ with a group baseline: PPO's clipped surrogate without a critic, advantages whitened over the whole
// batch.
//
//   J(θ) = E [ 1/Σ_i |o_i| Σ_i Σ_t min( c_it·A_i, clip(c_it, 1 − ε, 1 + ε_high)·A_i ) ]
//   B_i = R_i − mean_group R (advantage.group_baseline false: B_i = R_i)
//   A_i = (B_i − mean_batch B) / (std_batch B + 1e-4)
//
// Source: Hu et al., "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization",
// arXiv 2501.03262.
// Symbols: G → run.rollouts.geometry.num_generations, ε → method.clip.epsilon_low, ε_high →
// method.clip.epsilon_high, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over all loss tokens of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/reinforce_pp.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: the KL penalty, where one is asked for, is k3 in the loss (Kl = loss::K3Kl); the paper offers k1 in the
// reward and k2.
#pragma once

#include <rlalgo/advantage/batch_whitened.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl>
struct BasicReinforcePp {
  using Loss = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, Kl, loss::GlobalTokenCount>;
  using Estimator = advantage::BatchWhitened;
  using Aggregation = aggregation::SumThenNormalize;

  struct Config {
    loss::ClippedRatio::Config clip{};
    typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
    advantage::BatchWhitened::Config advantage{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {Loss({.surrogate = c.clip, .ratio = {}, .kl = c.kl, .reduction = {}}), Estimator(c.advantage), {}};
  }
};
using ReinforcePp = BasicReinforcePp<>;

}  // namespace rlalgo
