// Dr. GRPO: GRPO done right, without length and difficulty bias.
//
//   J(θ) = E [ 1/G Σ_i 1/L Σ_t min( c_it·A_i, clip(c_it, 1 − ε, 1 + ε_high)·A_i ) ],   A_i = R_i − mean_group R
//   L = max_completion_length, a constant
//
// Source: Liu et al., "Understanding R1-Zero-Like Training: A Critical Perspective", arXiv 2503.20783, eq. 3.
// Symbols: G → run.rollouts.geometry.num_generations, ε → method.clip.epsilon_low, ε_high →
// method.clip.epsilon_high, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: sum over tokens divided by L and by the completions of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/grpo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: none; in TRL loss_type "dr_grpo" keeps the scaling by the deviation unless scale_rewards is false.
#pragma once

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/fixed_length.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, class Ratio = loss::TokenRatio>
struct BasicDrGrpo {
  using Loss = loss::PolicyGradient<loss::ClippedRatio, Ratio, Kl, loss::FixedLength>;
  using Estimator = advantage::GroupRelative<advantage::Scale::none>;
  using Aggregation = aggregation::SumThenNormalize;

  struct Config {
    loss::ClippedRatio::Config clip{};
    typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
    advantage::GroupRelativeConfig advantage{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c,
                                                                  const sampler::RolloutsConfig& sampling) {
    return {Loss({.surrogate = c.clip,
                  .ratio = {},
                  .kl = c.kl,
                  .reduction = {.max_completion_length = sampling.sampling.max_new_tokens}}),
            Estimator(c.advantage),
            {}};
  }
};
using DrGrpo = BasicDrGrpo<>;

}  // namespace rlalgo
