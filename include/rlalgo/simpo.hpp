// SimPO: preference on length-normalised log-probs with a margin; neither reference nor likelihood term.
//
//   L(θ) = −E [ log σ( β/|y_w|·log π_θ(y_w|x) − β/|y_l|·log π_θ(y_l|x) − γ ) ]
//
// Source: Meng et al., "SimPO: Simple Preference Optimization with a Reference-Free Reward", arXiv 2405.14734, eq. 6;
// β = 2.0 and γ = 0.5 lie in its ranges (table 7). AlphaPO (Gupta et al., arXiv 2501.03884) is SimPO with loss.shape.
// Symbols: β → method.beta, γ → method.objective.gamma (not scaled by β).
// Reduction: mean over the pairs of the optimizer step and all ranks.
// Metrics: docs/algorithms/simpo.md.
// Errors: those of cpo.hpp.
// Departures: none from the paper. In YAML, rl: simpo has a likelihood term unless cpo_alpha is 0, as in axolotl.
#pragma once

#include <rlalgo/cpo.hpp>

namespace rlalgo {

struct SimPo {
  using Loss = BasicCpo<loss::MarginSigmoid, loss::MeanLogProb>::Loss;

  struct Config : Loss::Config {
    Config() : Loss::Config{.beta = 2.0, .objective = {.gamma = 0.5}, .likelihood_weight = 0.0} {}
  };

  static trainer::MethodParts<Loss> parts(const Config& c) { return {Loss(c)}; }
};

}  // namespace rlalgo
