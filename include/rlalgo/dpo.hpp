// DPO: learning from pairs of answers, without a reward model and without generating.
//
//   L(θ) = −E [ log σ( β·(log π_θ(y_w|x)/π_ref(y_w|x) − log π_θ(y_l|x)/π_ref(y_l|x)) ) ]
//
// Source: Rafailov et al., "Direct Preference Optimization: Your Language Model is Secretly a Reward Model", arXiv
// 2305.18290, eq. 7.
// Symbols: y_w, y_l → chosen, rejected answers of data::AnswerSet; β → method.beta; π_ref → inputs.reference. Any pair
// objective takes the place of −log σ: BasicDpo<loss::Hinge>, BasicDpo<loss::Mixed<loss::Sigmoid, loss::ChosenLikelihood>>, … and
// any divergence (loss/divergence.hpp) or weighting the place of the others.
// Reduction: mean over the pairs of the optimizer step and all ranks.
// Units: nats.
// Metrics: docs/algorithms/dpo.md.
// Errors: those of trainer/trainer.hpp, sampler/preferences.hpp and of the objective.
// Departures: none from the paper; from TRL see docs/departures.md.
#pragma once

#include <rlalgo/loss/alignment_by_transport.hpp>
#include <rlalgo/loss/chosen_likelihood.hpp>
#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/loss/mixed_objective.hpp>
#include <rlalgo/loss/pointwise_objectives.hpp>
#include <rlalgo/loss/squared_objectives.hpp>
#include <rlalgo/trainer/offline.hpp>

namespace rlalgo {

template <class Objective = loss::Sigmoid, class Divergence = loss::ReverseKl, class Weighting = loss::Unweighted>
struct BasicDpo {
  using Loss = loss::DirectPreference<Objective, Divergence, Weighting>;
};
using Dpo = BasicDpo<>;

}  // namespace rlalgo
