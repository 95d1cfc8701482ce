// The negative log-likelihood of the chosen completions as a term of a preference loss (`sft`).
//
//   loss = −Σ log π(y_t) / M    over the likelihood tokens of the step, M their number
//
// Which tokens these are is the loss's matter: completion tokens (DPO, CPO), or prompt tokens too (ORPO).
// Shapes: [P] → [P]; the mean over the pairs is the mean over the tokens (PairTerms::likelihood).
// Departure: TRL averages over the tokens of a micro-batch; here the tokens of the optimizer step are counted, so that
// the split into micro-batches does not matter.
#pragma once

#include <rlalgo/core/error.hpp>
#include <rlalgo/loss/pair_terms.hpp>

namespace rlalgo::loss {

struct ChosenLikelihood {
  struct Config {};
  static constexpr bool uses_scores = true;  // reads none: any divergence leaves it alone
  static constexpr bool per_pair = true;
  ChosenLikelihood() = default;
  explicit ChosenLikelihood(Config) {}
  Tensor operator()(const PairTerms& t) const { return t.likelihood; }
};

}  // namespace rlalgo::loss
