// From a configuration to the parts of energy-based fine-tuning: the frozen network, rewards, advantages, documents.
//
// Errors: those of assembly/feature_network.hpp, assembly/load_documents.hpp and feature/ground_truths.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/feature_network.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/load_documents.hpp>
#include <rlalgo/assembly/matching_texts.hpp>
#include <rlalgo/config/datasets.hpp>
#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/data/document_store.hpp>
#include <rlalgo/feature/ground_truths.hpp>
#include <rlalgo/feature/group_estimators.hpp>
#include <rlalgo/feature/matching.hpp>
#include <rlalgo/feature/pooling.hpp>
#include <rlalgo/feature/text_matching.hpp>
#include <rlalgo/inference/any_generator.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/sampler/rollouts.hpp>
#include <rlalgo/sampler/strided_blocks.hpp>

namespace rlalgo::config {

[[nodiscard]] inline assembly::FeatureNetworkConfig feature_network_of(const RunConfig& c) {
  assembly::FeatureNetworkConfig out{.model = std::nullopt,
                                     .layers = c.ebft.feature_layers,
                                     .normalization = c.ebft.feature_normalization == "joint"
                                                          ? feature::Normalization::joint
                                                          : feature::Normalization::per_layer};
  if (c.ebft.feature_model) out.model = {*c.ebft.feature_model, c.place("ebft.feature_model")};
  return out;
}

[[nodiscard]] inline feature::Pooling pooling(const RunConfig& c) {
  switch (pooling_of(c).part) {
    case PoolingPart::mean_pooling:
      return feature::Pooling::mean_pooling;
    case PoolingPart::completion_mean:
      return feature::Pooling::completion_mean;
    case PoolingPart::concat:
      return feature::Pooling::concat;
    case PoolingPart::last_token:
      break;
  }
  return feature::Pooling::last_token;
}

[[nodiscard]] inline feature::MatchingConfig matching(const RunConfig& c) {
  using feature::Whitening;
  if (!c.ebft.use_whitening) return {};
  return {.whitening = c.ebft.whitening_space == "sample" ? Whitening::sample : Whitening::feature};
}

[[nodiscard]] inline feature::AnyGroupEstimator matching_estimator(const RunConfig& c) {
  using feature::AnyGroupEstimator;
  switch (matching_estimator_of(c).part) {
    case MatchingPart::leave_one_out:
      return AnyGroupEstimator(feature::LeaveOneOut());
    case MatchingPart::group_norm:
      return AnyGroupEstimator(feature::GroupNorm());
    case MatchingPart::reward:
      return AnyGroupEstimator(feature::Reward());
    case MatchingPart::leave_out_pairs:
      break;
  }
  return AnyGroupEstimator(feature::LeaveOutPairs());
}

// Whether advantages are those of ebft.advantage_estimator: else trl.scale_rewards was asked for.
[[nodiscard]] inline bool estimates_from_matching(const RunConfig& c) {
  return matches_features(c) && (c.was_set("ebft.advantage_estimator") || !c.was_set("trl.scale_rewards"));
}

// Alignment and diversity as reward functions with their weights; `model` and `generator` must outlive them.
[[nodiscard]] inline std::vector<sampler::WeightedReward> matching_rewards(const RunConfig& c,
                                                                           const assembly::LanguageModel& model,
                                                                           feature::FeatureNetwork network,
                                                                           inference::AnyGenerator& generator,
                                                                           inference::SamplingConfig sampling) {
  const data::Json& kwargs = c.trl.chat_template_kwargs;
  feature::Texts texts = assembly::matching_texts(model, kwargs, columns_of(c));
  // Where environments, agents or a function have made the turns, there are no others.
  if (!c.trl.has_turns() && !c.trl.rollout_func && !c.nemo_gym.multi_turn)
    texts.converse = assembly::CarriedConversation(model, generator, kwargs, std::move(sampling), c.seed);
  const feature::MatchingRewards rewards = feature::matching_rewards({std::move(network),
                                                                      std::move(texts),
                                                                      {.pooling = pooling(c),
                                                                       .matching = matching(c),
                                                                       .alignment_coef = c.ebft.alignment_coef,
                                                                       .diversity_coef = c.ebft.diversity_coef}});
  return {{rewards.alignment, c.ebft.alignment_coef}, {rewards.diversity, -c.ebft.diversity_coef}};
}

// The ground truths that completions are matched with; null where none are. `model` must outlive them.
[[nodiscard]] inline std::shared_ptr<feature::GroundTruths> ground_truths(const RunConfig& c,
                                                                          const assembly::LanguageModel& model) {
  if (!matches_features(c)) return nullptr;
  return std::make_shared<feature::GroundTruths>(
      [&model](const std::string& text) { return model.tokenizer.encode(text, false); });
}

// What a ground truth says of how long completions may be; empty: nothing.
[[nodiscard]] inline std::function<std::int64_t(const data::TokenizedPrompt&)> completion_limit(
    const RunConfig& c, std::shared_ptr<const feature::GroundTruths> truths) {
  if (!matches_features(c) || !c.ebft.adaptive_max_tokens) return nullptr;
  return feature::limit_by_truth(std::move(truths), c.ebft.gt_length_multiplier);
}

[[nodiscard]] inline assembly::DocumentsConfig documents_of(const RunConfig& c) {
  assembly::DocumentsConfig out{datasets_of(c)};
  out.length = c.ebft.sequence_len;
  out.mask_thinking = c.ebft.mask_thinking_ce;
  out.kwargs = c.trl.chat_template_kwargs;
  out.pack = c.ebft.pack_documents;
  out.apart = c.ebft.document_masking;
  out.pack_where = c.place("ebft.pack_documents");
  return out;
}

[[nodiscard]] inline sampler::StridedConfig strided_sampling(const RunConfig& c) {
  const EbftConfig& e = c.ebft;
  return {.stride = e.stride,
          .context_length = e.context_length,
          .generate_max_len = e.generate_max_len,
          .samples = e.n_samples_per_prompt,
          .min_completion_prefix = e.min_completion_prefix,
          .temperature = e.temperature,
          .top_p = e.top_p,
          .pooling = pooling(c),
          .matching = matching(c),
          .alignment_coef = e.alignment_coef,
          .diversity_coef = e.diversity_coef,
          .likelihood = e.ce_coef > 0,
          .micro_batch_size = c.micro_batch_size,
          .gradient_accumulation_steps = c.gradient_accumulation_steps,
          .seed = c.seed,
          .shuffle = c.trl.shuffle_dataset};
}

// Of a run over documents: what resuming it compares beside its settings.
[[nodiscard]] inline data::Json fingerprints(const RunConfig& c, const assembly::Documents& documents) {
  data::Json out = {{"rows of datasets", data::identity_of(documents.train)}};
  if (!documents.evaluation.empty()) out["held-out rows"] = data::identity_of(documents.evaluation);
  if (detail::features_of_base(c)) detail::add_base(c, true, out);
  detail::add_features(c, out);
  return out;
}

}  // namespace rlalgo::config
