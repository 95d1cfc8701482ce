// VESPO: the score function weighted by a gamma-shaped function of the completion's importance weight.
//
//   J(θ) = E [ 1/Σ_i |o_i| Σ_i Σ_t sg( φ_i )·A_i·log π_θ(o_it | q, o_i<t) ]
//   φ_i = exp( λ + κ·s_i − λ·e^{s_i} ),   s_i = log π_θ(o_i | q) − log π_old(o_i | q);   (κ, λ) by the sign of A_i
//   A_i = (R_i − mean_group R) / (std_group R + 1e-4)
//
// Source: TRL's loss_type "vespo" (get_gamma_weights) and its defaults; clamps in loss/vespo.hpp.
// Symbols: G → run.rollouts.geometry.num_generations, κ, λ → weight.k_… and lambda_…, β → kl.beta.
// Rewards: R_i = Σ_k w_k·R_ik; NaN = not applicable (aggregation/sum_then_normalize.hpp).
// Reduction: mean over all loss tokens of the optimizer step and all ranks.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/vespo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: none.
#pragma once

#include <utility>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/vespo.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl>
using VespoLoss = loss::PolicyGradient<loss::Vespo, loss::TokenRatio, Kl, loss::GlobalTokenCount>;

template <class G, class Kl = loss::NoKl, class Y = sync::SharedWeights,
          advantage::Scale scale = advantage::Scale::group>
using Vespo =
    trainer::OnlineTrainer<VespoLoss<Kl>, advantage::GroupRelative<scale>, G, aggregation::SumThenNormalize, Y>;

template <class Kl = loss::NoKl>
struct VespoConfig {
  loss::Vespo::Config weight{};
  typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
  advantage::GroupRelativeConfig advantage{};
  trainer::OnlineConfig run{};  // geometry, sampling, optimizer, schedule, loop
};

template <class Kl = loss::NoKl, advantage::Scale scale = advantage::Scale::group, class G, class Y, class R>
[[nodiscard]] Vespo<G, Kl, Y, scale> make_vespo(VespoConfig<Kl> config, trainer::OnlineInputs<G, Y, R> inputs) {
  return trainer::make_online(
      config.run, VespoLoss<Kl>({.surrogate = config.weight, .ratio = {}, .kl = config.kl, .reduction = {}}),
      advantage::GroupRelative<scale>(config.advantage), aggregation::SumThenNormalize(), std::move(inputs));
}

}  // namespace rlalgo
