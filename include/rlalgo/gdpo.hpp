// GDPO: GRPO for several rewards, each normalised by its group before they are summed.
//
//   J(θ): as GRPO (grpo.hpp), with
//   Q_i = Σ_k w_k·(R_ik − mean_group R_k) / (std_group R_k + 1e-4),   A_i = (Q_i − mean_batch Q) / (std_batch Q + 1e-4)
//
// Source: Liu et al., "GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL
// Optimization", arXiv 2601.05242; TRL's multi_objective_aggregation "normalize_then_sum".
// Symbols: G → run.rollouts.geometry.num_generations, w_k → OnlineInputs::rewards, ε → method.clip.epsilon_low, ε_high →
// clip.epsilon_high, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/normalize_then_sum.hpp).
// Reduction: mean over the tokens of a completion, then over all completions of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/grpo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: denominators are counts of the step, not of a micro-batch (docs/departures.md).
#pragma once

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/normalize_then_sum.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, advantage::Scale scale = advantage::Scale::group>
struct BasicGdpo {
  using Loss = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, Kl, loss::SequenceMean>;
  using Estimator = advantage::GroupRelative<scale>;
  using Aggregation = aggregation::NormalizeThenSum;

  struct Config {
    loss::ClippedRatio::Config clip{};
    typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
    advantage::GroupRelativeConfig advantage{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {Loss({.surrogate = c.clip, .ratio = {}, .kl = c.kl, .reduction = {}}), Estimator(c.advantage), {}};
  }
};
using Gdpo = BasicGdpo<>;

}  // namespace rlalgo
