// RLOO: REINFORCE with the other completions of the prompt as the baseline, KL penalty in the reward.
//
//   J(θ) = E [ 1/G Σ_i min( c_i·A_i, clip(c_i, 1 − ε, 1 + ε_high)·A_i ) ],   c_i = π_θ(o_i | q) / π_old(o_i | q)
//   A_i = r_i − mean_{j≠i} r_j,   r_i = R_i − β·Σ_t ( log π_old(o_it | q, o_i<t) − log π_ref(o_it | q, o_i<t) )
//
// Source: Ahmadian et al., "Back to Basics: Revisiting REINFORCE-Style Optimization for Learning from Human Feedback in
// LLMs", arXiv 2402.14740, eq. 6 and 7; the clip, which leaves the first pass over the data as it is, is TRL's.
// Symbols: G → run.rollouts.geometry.num_generations, β → method.penalty.beta (0: OnlineInputs::reference is not needed), ε →
// method.clip.epsilon_low, ε_high → method.clip.epsilon_high.
// Rewards: R_i = Σ_k w_k·R_ik, clipped to penalty.range; NaN = not applicable (aggregation/sum_minus_kl.hpp).
// Reduction: mean over the completions of the optimizer step and all ranks; a completion has one ratio, no length term,
// and one whose tokens carry no loss has the ratio 1.
// Units: log-probs in nats at the sampling temperature.
// Metrics: docs/algorithms/rloo.md.
// Errors: those of trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: none.
#pragma once

#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/aggregation/sum_minus_kl.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/completion_ratio.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/row_mean.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

struct Rloo {
  using Loss = loss::PolicyGradient<loss::ClippedRatio, loss::CompletionRatio, loss::NoKl, loss::RowMean>;
  using Estimator = advantage::LeaveOneOut;
  using Aggregation = aggregation::SumMinusKl;

  struct Config {
    loss::ClippedRatio::Config clip{};
    aggregation::SumMinusKl::Config penalty{};
    advantage::LeaveOneOut::Config advantage{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {Loss({.surrogate = c.clip, .ratio = {}, .kl = {}, .reduction = {}}), Estimator(c.advantage),
            Aggregation(c.penalty)};
  }
};

}  // namespace rlalgo
