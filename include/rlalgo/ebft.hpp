// EBFT: energy-based fine-tuning on completions of prompts.
//
//   L(θ) = c_rl·L_DAPO(θ; A) + c_ce·CE(θ),   CE: the ground truth y of every prompt
//   A_j = r_j − b_j,   r_j = c_al·2cos(φ̃(ŷ_j), φ̃(y)) − c_dv·2/(n − 1) Σ_{i≠j} φ̃(ŷ_i)·φ̃(ŷ_j)
//
// Source: "Energy-based fine-tuning", arXiv 2603.12248, eq. 7–9 and 94; axolotl 0.19 `ebft.mode: structured`.
// Symbols: n → run.rollouts.geometry.num_generations; φ → a frozen network over prompt and completion as one text, and
// c_al, c_dv → feature::TextMatching; y → the column ground_truth; c_rl, c_ce → method.loss; b → E, the corrected baseline.
// Any loss over completions takes the place of L_DAPO in loss::WithCrossEntropy. CE needs TokenizedPrompt::answer_ids.
// Reduction: as dapo.hpp; CE over the tokens of the ground truths of the step. Units: nats.
// Metrics: docs/algorithms/ebft.md.
// Errors: those of feature/, trainer/trainer.hpp and sampler/rollouts.hpp.
// Departures: corrected baseline, c_ce has an effect, texts are never padded (docs/departures.md).
#pragma once

#include <utility>
#include <vector>

#include <rlalgo/advantage/pass_through.hpp>
#include <rlalgo/dapo.hpp>
#include <rlalgo/feature/matching_advantage.hpp>
#include <rlalgo/feature/text_matching.hpp>
#include <rlalgo/loss/with_cross_entropy.hpp>
#include <rlalgo/trainer/online.hpp>

namespace rlalgo {

template <class Kl = loss::NoKl, class E = feature::LeaveOutPairs>
struct BasicEbft {
  using Policy = typename BasicDapo<Kl>::Loss;
  using Loss = loss::WithCrossEntropy<Policy>;
  using Estimator = advantage::PassThrough;
  using Aggregation = feature::MatchingAdvantage<E>;

  struct Config {
    typename Loss::Config loss{.policy = 1.0, .cross_entropy = 0.0, .prefix = "ebft/"};
    loss::ClippedRatio::Config clip{};
    typename Kl::Config kl{};  // K3Kl: beta; OnlineInputs::reference must then be given
    E baseline{};
  };

  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c) {
    return {Loss(c.loss, Policy({.surrogate = c.clip, .ratio = {}, .kl = c.kl, .reduction = {}})),
            {},
            Aggregation(c.baseline)};
  }
};
using Ebft = BasicEbft<>;

// The rewards of the method: OnlineInputs::rewards, others may not stand beside them.
[[nodiscard]] inline std::vector<sampler::WeightedReward> ebft_rewards(feature::TextMatching matching) {
  const auto [al, dv] = std::pair(matching.config().alignment_coef, matching.config().diversity_coef);
  const feature::MatchingRewards rewards = feature::matching_rewards(std::move(matching));
  return {{rewards.alignment, al}, {rewards.diversity, -dv}};
}

}  // namespace rlalgo
