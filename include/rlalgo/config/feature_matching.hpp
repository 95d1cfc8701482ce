// From a configuration to the parts of energy-based fine-tuning: the frozen network, advantages, documents. Its completions:
// config/completions.hpp.
//
// Errors: those of assembly/feature_network.hpp and assembly/load_documents.hpp.
#pragma once

#include <cstdint>
#include <optional>

#include <rlalgo/assembly/feature_network.hpp>
#include <rlalgo/assembly/load_documents.hpp>
#include <rlalgo/config/datasets.hpp>
#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/data/document_store.hpp>
#include <rlalgo/feature/group_estimators.hpp>
#include <rlalgo/feature/matching.hpp>
#include <rlalgo/feature/pooling.hpp>
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
