// GRPO: group-relative policy optimization.
//
//   J(θ) = E_q,{o_i}~π_old [ 1/G Σ_i 1/|o_i| Σ_t ( min( c_it·A_i, clip(c_it, 1 − ε, 1 + ε_high)·A_i ) − β·k3_it ) ]
//   c_it = π_θ(o_it | q, o_i<t) / π_old(o_it | q, o_i<t),   A_i = (R_i − mean_group R) / (std_group R + 1e-4)
//
// Source: Shao et al., "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models", arXiv
// 2402.03300, eq. 3 and 4; token-level ratio, k3 KL in the loss (Kl = loss::K3Kl), none by default as in TRL.
// Symbols: G → run.rollouts.geometry.num_generations, ε → method.clip.epsilon_low, ε_high →
// method.clip.epsilon_high, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over the tokens of a completion, then over all completions of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/grpo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: denominators are counts of the step, not of a micro-batch (docs/departures.md).
#pragma once

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, class Ratio = loss::TokenRatio, advantage::Scale scale = advantage::Scale::group>
struct BasicGrpo {
  using Loss = loss::PolicyGradient<loss::ClippedRatio, Ratio, Kl, loss::SequenceMean>;
  using Estimator = advantage::GroupRelative<scale>;
  using Aggregation = aggregation::SumThenNormalize;

  struct Config {
    loss::ClippedRatio::Config clip{};
    typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
    advantage::GroupRelativeConfig advantage{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {Loss({.surrogate = c.clip, .ratio = {}, .kl = c.kl, .reduction = {}}), Estimator(c.advantage), {}};
  }
};
using Grpo = BasicGrpo<>;

}  // namespace rlalgo
