// ORPO: supervised training and preference in one loss, without a reference model.
//
//   L(θ) = E [ NLL(x, y_w) − β·log σ( log odds(y_w|x)/odds(y_l|x) ) ],  odds(y|x) = P/(1 − P), P = exp(mean log-prob)
//
// Source: Hong et al., "ORPO: Monolithic Preference Optimization without Reference Model", arXiv 2403.07691, eq. 6–7.
// Symbols: λ of the paper → method.beta.
// Reduction: NLL is a mean over the tokens of the chosen sequences, prompts included, of the optimizer step and all
// ranks; the ratio term a mean over pairs.
// Metrics: docs/algorithms/orpo.md.
// Errors: those of trainer/trainer.hpp and sampler/preferences.hpp.
// Departures: see loss/odds_ratio.hpp.
#pragma once

#include <rlalgo/loss/odds_ratio.hpp>
#include <rlalgo/trainer/offline.hpp>

namespace rlalgo {

struct Orpo {
  using Loss = loss::OddsRatio;
};

}  // namespace rlalgo
