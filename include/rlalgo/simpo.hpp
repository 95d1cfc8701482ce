// SimPO: preference on length-normalised log-probs with a margin; neither reference nor likelihood term.
//
//   L(θ) = −E [ log σ( β/|y_w|·log π_θ(y_w|x) − β/|y_l|·log π_θ(y_l|x) − γ ) ]
//
// Source: Meng et al., "SimPO: Simple Preference Optimization with a Reference-Free Reward", arXiv 2405.14734, eq. 6;
// β = 2.0 and γ = 0.5 lie in its ranges (table 7). AlphaPO (Gupta et al., arXiv 2501.03884) is SimPO with loss.shape.
// Symbols: β → loss.beta, γ → loss.objective.gamma (not scaled by β).
// Reduction: mean over the pairs of the optimizer step and all ranks.
// Metrics: docs/algorithms/simpo.md.
// Errors: those of cpo.hpp.
// Departures: none from the paper. In YAML, rl: simpo has a likelihood term unless cpo_alpha is 0, as in axolotl.
#pragma once

#include <rlalgo/cpo.hpp>

namespace rlalgo {

using SimPoLoss = CpoLoss<loss::MarginSigmoid, loss::MeanLogProb>;
using SimPo = Cpo<loss::MarginSigmoid, loss::MeanLogProb>;

struct SimPoConfig {
  SimPoLoss::Config loss{.beta = 2.0, .objective = {.gamma = 0.5}, .likelihood_weight = 0.0};
  trainer::OfflineConfig run{};  // batch, order, optimizer, schedule, loop
};

[[nodiscard]] inline SimPo make_simpo(SimPoConfig config, trainer::OfflineInputs inputs) {
  return trainer::make_offline(std::move(config.run), SimPoLoss(std::move(config.loss)), std::move(inputs));
}

}  // namespace rlalgo
