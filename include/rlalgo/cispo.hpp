// CISPO: clipped importance-sampling weights; every token keeps its gradient.
//
//   J(θ) = E [ 1/Σ_i |o_i| Σ_i Σ_t sg( min(c_it, ε_high) )·A_i·log π_θ(o_it | q, o_i<t) ]
//   c_it = π_θ(o_it | q, o_i<t) / π_old(o_it | q, o_i<t),   A_i = (R_i − mean_group R) / (std_group R + 1e-4)
//
// Source: MiniMax, "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention", arXiv 2506.13585, eq.
// 4 and 5; the cap 5 is ScaleRL's (Khatri et al., arXiv 2510.13786).
// Symbols: G → run.rollouts.geometry.num_generations, ε_high → cap.epsilon_high, β → kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over all loss tokens of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/cispo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: TRL's default cap is epsilon = 0.2, and YAML runs (loss_type: cispo) follow TRL.
#pragma once

#include <utility>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/cispo.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl>
using CispoLoss = loss::PolicyGradient<loss::Cispo, loss::TokenRatio, Kl, loss::GlobalTokenCount>;

template <class G, class Kl = loss::NoKl, class Y = sync::SharedWeights,
          advantage::Scale scale = advantage::Scale::group>
using Cispo =
    trainer::OnlineTrainer<CispoLoss<Kl>, advantage::GroupRelative<scale>, G, aggregation::SumThenNormalize, Y>;

template <class Kl = loss::NoKl>
struct CispoConfig {
  loss::Cispo::Config cap{.epsilon_high = 5.0};
  typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
  advantage::GroupRelativeConfig advantage{};
  trainer::OnlineConfig run{};  // geometry, sampling, optimizer, schedule, loop
};

template <class Kl = loss::NoKl, advantage::Scale scale = advantage::Scale::group, class G, class Y, class R>
[[nodiscard]] Cispo<G, Kl, Y, scale> make_cispo(CispoConfig<Kl> config, trainer::OnlineInputs<G, Y, R> inputs) {
  return trainer::make_online(
      config.run, CispoLoss<Kl>({.surrogate = config.cap, .ratio = {}, .kl = config.kl, .reduction = {}}),
      advantage::GroupRelative<scale>(config.advantage), aggregation::SumThenNormalize(), std::move(inputs));
}

}  // namespace rlalgo
