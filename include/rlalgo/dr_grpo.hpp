// Dr. GRPO: GRPO done right, without length and difficulty bias.
//
//   J(θ) = E [ 1/G Σ_i 1/L Σ_t min( c_it·A_i, clip(c_it, 1 − ε, 1 + ε_high)·A_i ) ],   A_i = R_i − mean_group R
//   L = max_completion_length, a constant
//
// Source: Liu et al., "Understanding R1-Zero-Like Training: A Critical Perspective", arXiv 2503.20783, eq. 3.
// Symbols: G → run.rollouts.geometry.num_generations, ε → clip.epsilon_low, ε_high → clip.epsilon_high, β → kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: sum over tokens divided by L and by the completions of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/grpo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: none; in TRL loss_type "dr_grpo" keeps the scaling by the deviation unless scale_rewards is false.
#pragma once

#include <utility>

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
using DrGrpoLoss = loss::PolicyGradient<loss::ClippedRatio, Ratio, Kl, loss::FixedLength>;

template <class G, class Kl = loss::NoKl, class Ratio = loss::TokenRatio, class Y = sync::SharedWeights,
          advantage::Scale scale = advantage::Scale::none>
using DrGrpo =
    trainer::OnlineTrainer<DrGrpoLoss<Kl, Ratio>, advantage::GroupRelative<scale>, G, aggregation::SumThenNormalize, Y>;

template <class Kl = loss::NoKl>
struct DrGrpoConfig {
  loss::ClippedRatio::Config clip{};
  typename Kl::Config kl{};                    // K3Kl: beta; OnlineInputs::reference must then be given
  advantage::GroupRelativeConfig advantage{};  // epsilon: where a deviation divides
  trainer::OnlineConfig run{};                 // geometry, sampling, optimizer, schedule, loop
};

template <class Kl = loss::NoKl, class Ratio = loss::TokenRatio, advantage::Scale scale = advantage::Scale::none,
          class G, class Y, class R>
[[nodiscard]] DrGrpo<G, Kl, Ratio, Y, scale> make_dr_grpo(DrGrpoConfig<Kl> config,
                                                          trainer::OnlineInputs<G, Y, R> inputs) {
  return trainer::make_online(
      config.run,
      DrGrpoLoss<Kl, Ratio>({.surrogate = config.clip,
                             .ratio = {},
                             .kl = config.kl,
                             .reduction = {.max_completion_length = config.run.rollouts.sampling.max_new_tokens}}),
      advantage::GroupRelative<scale>(config.advantage), aggregation::SumThenNormalize(), std::move(inputs));
}

}  // namespace rlalgo
