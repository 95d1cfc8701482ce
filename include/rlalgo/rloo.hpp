// RLOO: REINFORCE with the other completions of the prompt as the baseline, KL penalty in the reward.
//
//   J(θ) = E [ 1/G Σ_i min( c_i·A_i, clip(c_i, 1 − ε, 1 + ε_high)·A_i ) ],   c_i = π_θ(o_i | q) / π_old(o_i | q)
//   A_i = r_i − mean_{j≠i} r_j,   r_i = R_i − β·Σ_t ( log π_old(o_it | q, o_i<t) − log π_ref(o_it | q, o_i<t) )
//
// Source: Ahmadian et al., "Back to Basics: Revisiting REINFORCE-Style Optimization for Learning from Human Feedback in
// LLMs", arXiv 2402.14740, eq. 6 and 7; the clip, which leaves the first pass over the data as it is, is TRL's.
// Symbols: G → run.rollouts.geometry.num_generations, β → penalty.beta (0: OnlineInputs::reference is not needed), ε →
// clip.epsilon_low, ε_high → clip.epsilon_high.
// Rewards: R_i = Σ_k w_k·R_ik, clipped to penalty.range; NaN = not applicable (aggregation/sum_minus_kl.hpp).
// Reduction: mean over the completions of the optimizer step and all ranks; a completion has one ratio, no length term.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/rloo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: none.
#pragma once

#include <utility>

#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/aggregation/sum_minus_kl.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/completion_ratio.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

using RlooLoss = loss::PolicyGradient<loss::ClippedRatio, loss::CompletionRatio, loss::NoKl, loss::SequenceMean>;

template <class G, class Y = sync::SharedWeights>
using Rloo = trainer::OnlineTrainer<RlooLoss, advantage::LeaveOneOut, G, aggregation::SumMinusKl, Y>;

struct RlooConfig {
  loss::ClippedRatio::Config clip{};
  aggregation::SumMinusKl::Config penalty{};
  advantage::LeaveOneOut::Config advantage{};
  trainer::OnlineConfig run{};  // geometry, sampling, optimizer, schedule, loop
};

template <class G, class Y, class R>
[[nodiscard]] Rloo<G, Y> make_rloo(RlooConfig config, trainer::OnlineInputs<G, Y, R> inputs) {
  return trainer::make_online(config.run, RlooLoss({.surrogate = config.clip, .ratio = {}, .kl = {}, .reduction = {}}),
                              advantage::LeaveOneOut(config.advantage), aggregation::SumMinusKl(config.penalty),
                              std::move(inputs));
}

}  // namespace rlalgo
