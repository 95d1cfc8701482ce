// BNPO: the GRPO objective with a token mean over each micro-batch.
//
//   J(θ) = mean over micro-batches of [ Σ_i Σ_t ( min( c·A, clip(c)·A ) − β·k3 ) / Σ_i |o_i| ]
//
// Source: TRL, loss_type "bnpo" (the token mean over the local batch); objective of GRPO, arXiv 2402.03300.
// Symbols: G → run.rollouts.geometry.num_generations, ε → method.clip.epsilon_low, ε_high →
// method.clip.epsilon_high, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over the tokens of a micro-batch, then over the micro-batches of the step. By definition the only
// door whose value depends on micro_batch_size; use dapo.hpp for the mean over the tokens of the whole step.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/grpo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: rows of a group stay together in micro-batches, where TRL permutes rows.
#pragma once

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

template <class Kl = loss::NoKl, class Ratio = loss::TokenRatio, advantage::Scale scale = advantage::Scale::group>
struct BasicBnpo {
  using Loss = loss::PolicyGradient<loss::ClippedRatio, Ratio, Kl, loss::TokenMean>;
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
using Bnpo = BasicBnpo<>;

}  // namespace rlalgo
