// CPO: contrastive preference on the policy's own log-probs, with a likelihood term in the place of a reference.
//
//   L(θ) = E [ −log σ( β·(log π_θ(y_w|x) − log π_θ(y_l|x)) ) ] + α·NLL(y_w|x)
//
// Source: Xu et al., "Contrastive Preference Optimization: Pushing the Boundaries of LLM Performance in Machine
// Translation", arXiv 2401.08417, eq. 5.
// Symbols: β → method.beta, α → method.likelihood_weight (1).
// Reduction: pairs of the optimizer step and all ranks; NLL is the token mean over their chosen completions.
// Metrics: docs/algorithms/cpo.md.
// Errors: those of trainer/trainer.hpp, sampler/preferences.hpp and loss/contrastive.hpp.
// Departures: none from the paper.
#pragma once

#include <rlalgo/loss/contrastive.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/loss/squared_objectives.hpp>
#include <rlalgo/trainer/offline.hpp>

namespace rlalgo {

template <class Objective = loss::MarginSigmoid, class Level = loss::SummedLogProb>
struct BasicCpo {
  using Loss = loss::Contrastive<Objective, Level>;
};
using Cpo = BasicCpo<>;

}  // namespace rlalgo
