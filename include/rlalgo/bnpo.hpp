// BNPO: the GRPO objective with a token mean over each micro-batch.
//
//   J(θ) = mean over micro-batches of [ Σ_i Σ_t ( min( c·A, clip(c)·A ) − β·k3 ) / Σ_i |o_i| ]
//
// Source: TRL, loss_type "bnpo" (the token mean over the local batch); objective of GRPO, arXiv 2402.03300.
// Symbols: G → run.rollouts.geometry.num_generations, ε → clip.epsilon_low, ε_high → clip.epsilon_high, β → kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over the tokens of a micro-batch, then over the micro-batches of the step. By definition the only
// door whose value depends on micro_batch_size; use dapo.hpp for the mean over the tokens of the whole step.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/grpo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: rows of a group stay together in micro-batches, where TRL permutes rows.
#pragma once

#include <utility>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, class Ratio = loss::TokenRatio>
using BnpoLoss = loss::PolicyGradient<loss::ClippedRatio, Ratio, Kl, loss::TokenMean>;

template <class G, class Kl = loss::NoKl, class Ratio = loss::TokenRatio, class Y = sync::SharedWeights,
          advantage::Scale scale = advantage::Scale::group>
using Bnpo =
    trainer::OnlineTrainer<BnpoLoss<Kl, Ratio>, advantage::GroupRelative<scale>, G, aggregation::SumThenNormalize, Y>;

template <class Kl = loss::NoKl>
struct BnpoConfig {
  loss::ClippedRatio::Config clip{};
  typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
  advantage::GroupRelativeConfig advantage{};
  trainer::OnlineConfig run{};  // geometry, sampling, optimizer, schedule, loop
};

template <class Kl = loss::NoKl, class Ratio = loss::TokenRatio, advantage::Scale scale = advantage::Scale::group,
          class G, class Y, class R>
[[nodiscard]] Bnpo<G, Kl, Ratio, Y, scale> make_bnpo(BnpoConfig<Kl> config, trainer::OnlineInputs<G, Y, R> inputs) {
  return trainer::make_online(
      config.run, BnpoLoss<Kl, Ratio>({.surrogate = config.clip, .ratio = {}, .kl = config.kl, .reduction = {}}),
      advantage::GroupRelative<scale>(config.advantage), aggregation::SumThenNormalize(), std::move(inputs));
}

}  // namespace rlalgo
