// LUSPO: GSPO with every completion weighted by its length, so that long answers are not discounted.
//
//   J(θ) = E [ 1/G Σ_i |o_i|·min( c_i·A_i, clip(c_i, 1 − ε, 1 + ε_high)·A_i ) ]
//   c_i = ( π_θ(o_i | q) / π_old(o_i | q) )^(1/|o_i|),   A_i = (R_i − mean_group R) / (std_group R + 1e-4)
//
// Source: Zheng et al., arXiv 2602.05261; TRL's loss_type "luspo" with importance_sampling_level "sequence".
// Symbols: G → run.rollouts.geometry.num_generations, ε → method.clip.epsilon_low, ε_high →
// method.clip.epsilon_high, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: length-weighted sum over the completions, divided by their number in the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/luspo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: padding never counts; TRL averages over it as soon as a term has one value per token
// (docs/departures.md).
#pragma once

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/length_weighted.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, advantage::Scale scale = advantage::Scale::group>
struct BasicLuspo {
  using Loss = loss::PolicyGradient<loss::ClippedRatio, loss::SequenceRatio, Kl, loss::LengthWeighted>;
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
using Luspo = BasicLuspo<>;

}  // namespace rlalgo
