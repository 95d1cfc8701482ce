// DAPO: the GRPO objective as a token mean over the step, with a wider upper clip.
//
//   J(θ) = E [ 1/Σ_i |o_i| Σ_i Σ_t min( c_it·A_i, clip(c_it, 1 − ε_low, 1 + ε_high)·A_i ) ]
//
// Source: Yu et al., "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", arXiv 2503.14476, eq. 8 (token
// mean) and section 3.1 (ε_low = 0.2, ε_high = 0.28).
// Symbols: G → run.rollouts.geometry.num_generations, ε → method.clip.epsilon_low, ε_high →
// method.clip.epsilon_high, β → method.kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over all loss tokens of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/grpo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: dynamic sampling (section 3.2) is not part of this door, as in TRL; TRL's default for ε_high is ε, and
// YAML runs (loss_type: dapo) follow TRL.
#pragma once

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, class Ratio = loss::TokenRatio, advantage::Scale scale = advantage::Scale::group>
struct BasicDapo {
  using Loss = loss::PolicyGradient<loss::ClippedRatio, Ratio, Kl, loss::GlobalTokenCount>;
  using Estimator = advantage::GroupRelative<scale>;
  using Aggregation = aggregation::SumThenNormalize;

  struct Config {
    loss::ClippedRatio::Config clip{.epsilon_low = 0.2, .epsilon_high = 0.28};
    typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
    advantage::GroupRelativeConfig advantage{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {Loss({.surrogate = c.clip, .ratio = {}, .kl = c.kl, .reduction = {}}), Estimator(c.advantage), {}};
  }
};
using Dapo = BasicDapo<>;

}  // namespace rlalgo
