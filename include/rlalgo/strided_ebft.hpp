// Strided EBFT: energy-based fine-tuning on blocks at every stride of a text.
//
//   L(θ) = c_rl·( − 1/N Σ_{k,j,t} A_kj·log π_θ(ŷ_kjt | y_<e_k, ŷ_kj,<t) ) + c_ce·CE(θ),   e_k = a0 + k·stride
//   A_kj = r_kj − b_kj,   r_kj = c_al·2cos(φ̃(ŷ_kj), φ̃(y_k)) − c_dv·2/(n − 1) Σ_{i≠j} φ̃(ŷ_ki)·φ̃(ŷ_kj)
//
// Source: "Energy-based fine-tuning", arXiv 2603.12248, eq. 7–9 and 94; axolotl 0.19 `ebft.mode: strided`.
// Symbols: stride, a0, G (tokens of a block), n (samples) → run.sampling; φ → StridedInputs::network; y_k → the document's
// tokens at e_k; N → generated tokens of the step; c_rl, c_ce → method.loss; b → E, the corrected baseline by default.
// Shapes: documents of any length, without padding; K blocks each. Units: nats at the sampling temperature; CE at 1.
// Reduction: sums over all micro-batches and ranks, divided by counts of the optimizer step.
// Metrics: docs/algorithms/ebft.md.
// Errors: those of sampler/strided_blocks.hpp, inference/block_engine.hpp, feature/ and trainer/trainer.hpp.
// Departures: predictors, order of advantages, baseline and sampling are the paper's, not axolotl's (docs/departures.md).
#pragma once

#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/reinforce.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/with_cross_entropy.hpp>
#include <rlalgo/trainer/strided.hpp>

namespace rlalgo {

template <class E = feature::LeaveOutPairs>
struct BasicStridedEbft {
  using Score = loss::PolicyGradient<loss::Reinforce, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount>;
  using Loss = loss::WithCrossEntropy<Score>;
  using Estimator = E;
  static constexpr trainer::MethodHooks hooks{.run = true};
  template <class O>
  using Run = trainer::BasicStridedTrainerConfig<O>;

  struct Config {
    Loss::Config loss{.policy = 1.0, .cross_entropy = 0.0, .prefix = "ebft/"};
    E baseline{};
  };

  static trainer::MethodParts<Loss, Estimator> parts(const Config& c, sampler::StridedConfig& sampling) {
    sampling.likelihood = c.loss.cross_entropy > 0;
    return {Loss(c.loss, Score({})), c.baseline, {}};
  }
};
using StridedEbft = BasicStridedEbft<>;

}  // namespace rlalgo
