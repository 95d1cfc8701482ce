// GSPO: group sequence policy optimization, one importance ratio for a whole completion.
//
//   J(θ) = E [ 1/G Σ_i min( c_i·A_i, clip(c_i, 1 − ε, 1 + ε_high)·A_i ) ]
//   c_i = ( π_θ(o_i | q) / π_old(o_i | q) )^(1/|o_i|),   A_i = (R_i − mean_group R) / (std_group R + 1e-4)
//
// Source: Zheng et al., "Group Sequence Policy Optimization", arXiv 2507.18071, eq. 5 to 7; ε = 3e-4 and ε_high = 4e-4
// are those of its section 5.1. On-policy it is GRPO.
// Symbols: G → run.rollouts.geometry.num_generations, ε → method.clip.epsilon_low, ε_high →
// method.clip.epsilon_high, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over the completions of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/gspo.md.
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
#include <rlalgo/loss/sequence_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, advantage::Scale scale = advantage::Scale::group>
struct BasicGspo {
  using Loss = loss::PolicyGradient<loss::ClippedRatio, loss::SequenceRatio, Kl, loss::SequenceMean>;
  using Estimator = advantage::GroupRelative<scale>;
  using Aggregation = aggregation::SumThenNormalize;

  struct Config {
    loss::ClippedRatio::Config clip{.epsilon_low = 3e-4, .epsilon_high = 4e-4};
    typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
    advantage::GroupRelativeConfig advantage{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {Loss({.surrogate = c.clip, .ratio = {}, .kl = c.kl, .reduction = {}}), Estimator(c.advantage), {}};
  }
};
using Gspo = BasicGspo<>;

}  // namespace rlalgo
