// ORPO: supervised training and preference in one loss, without a reference model.
//
//   L(θ) = E [ NLL(x, y_w) − β·log σ( log odds(y_w|x)/odds(y_l|x) ) ],  odds(y|x) = P/(1 − P), P = exp(mean log-prob)
//
// Source: Hong et al., "ORPO: Monolithic Preference Optimization without Reference Model", arXiv 2403.07691, eq. 6–7.
// Symbols: λ of the paper → loss.beta.
// Reduction: NLL is a mean over the tokens of the chosen sequences, prompts included, of the optimizer step and all
// ranks; the ratio term a mean over pairs.
// Metrics: docs/algorithms/orpo.md.
// Errors: those of trainer/trainer.hpp and sampler/preferences.hpp.
// Departures: see loss/odds_ratio.hpp.
#pragma once

#include <utility>

#include <rlalgo/loss/odds_ratio.hpp>
#include <rlalgo/trainer/offline.hpp>

namespace rlalgo {

using OrpoLoss = loss::OddsRatio;
using Orpo = trainer::OfflineTrainer<OrpoLoss>;

struct OrpoConfig {
  OrpoLoss::Config loss{};
  trainer::OfflineConfig run{};  // batch, order, optimizer, schedule, loop
};

[[nodiscard]] inline Orpo make_orpo(OrpoConfig config, trainer::OfflineInputs inputs) {
  return trainer::make_offline(std::move(config.run), OrpoLoss(config.loss), std::move(inputs));
}

}  // namespace rlalgo
