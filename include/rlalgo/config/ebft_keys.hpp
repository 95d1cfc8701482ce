// The `ebft:` section: energy-based fine-tuning with completions (structured) or with blocks (strided).
//
// A field has the name of its key; defaults are axolotl's. Words are rows of config/matching_methods.hpp. A key of the other mode has no
// effect.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/key.hpp>
#include <rlalgo/config/methods.hpp>

namespace rlalgo::config {

struct EbftConfig {
  std::string mode = "structured";

  // Features and rewards
  std::vector<double> feature_layers = {0.25, 0.5, 0.75};
  std::optional<std::string> feature_model;
  std::string feature_normalization = "joint";
  std::string embed_method = "last_token";
  bool use_whitening = false;
  std::string whitening_space = "feature";
  double alignment_coef = 1.0;
  double diversity_coef = 1.0;

  // Loss
  double rl_coef = 1.0;
  double ce_coef = 0.0;
  bool mask_thinking_ce = false;
  std::string advantage_estimator = "rloo";

  // Structured
  bool adaptive_max_tokens = true;
  double gt_length_multiplier = 1.5;

  // Strided
  std::int64_t stride = 8;
  std::int64_t context_length = 8;
  std::int64_t generate_max_len = 8;
  std::int64_t n_samples_per_prompt = 4;
  std::int64_t min_completion_prefix = 0;
  double temperature = 0.6;
  double top_p = 1.0;
  bool pack_documents = false;
  bool document_masking = false;
  std::int64_t sequence_len = 512;  // the top-level key: tokens of a document at most

  bool save_rollouts = false;
};

// clang-format off
[[nodiscard]] inline Keys ebft_keys(EbftConfig& e) {
  constexpr std::string_view structured = "structured", strided = "strided";
  static const std::vector<std::string> spaces = {"feature", "sample"};
  return {
    key("ebft.mode", e.mode, "completions of prompts against the answers of the dataset, or blocks at every stride of a text")
        .one_of(names_of(matching_modes())),
    key("ebft.feature_layers", e.feature_layers, "relative depths").within(fraction),
    key("ebft.feature_model", e.feature_model, "another checkpoint than `base_model` (ours)").a_path(),
    key("ebft.feature_normalization", e.feature_normalization, "of all layers together, or of each (ours)").one_of({"joint", "per_layer"}),
    key("ebft.embed_method", e.embed_method, "which tokens are the feature of a text; of blocks the first two words")
        .one_of(names_of(poolings())),
    key("ebft.use_whitening", e.use_whitening, "features are whitened"),
    key("ebft.whitening_space", e.whitening_space, "in which space (ours)").one_of(spaces),
    key("ebft.whitening", "").by("feature, sample", [&e](const Node& node) { e.whitening_space = detail::chosen("ebft.whitening", node,
        spaces); }).same_as("ebft.whitening_space"),
    key("ebft.alignment_coef", e.alignment_coef, "weight of the alignment with the ground truth").within(any_number),
    key("ebft.diversity_coef", e.diversity_coef, "weight of the similarity among the samples").within(any_number),
    key("ebft.rl_coef", e.rl_coef, "weight of the policy loss").within(any_number),
    key("ebft.ce_coef", e.ce_coef, "weight of the likelihood of ground truth or document; 0: not computed").within(at_least(0)),
    key("ebft.advantage_estimator", e.advantage_estimator, "how a group's rewards become advantages")
        .one_of(names_of(matching_estimators())),
    key("ebft.adaptive_max_tokens", e.adaptive_max_tokens, "completions are limited by the longest ground truth of their batch")
        .of_mode(structured),
    key("ebft.gt_length_multiplier", e.gt_length_multiplier, "of the ground truth's tokens, for that limit").within(at_least(0.1))
        .of_mode(structured),
    key("ebft.stride", e.stride, "tokens between anchors").within(count(1)).of_mode(strided),
    key("ebft.context_length", e.context_length, "tokens before the first anchor").within(count(1)).of_mode(strided),
    key("ebft.generate_max_len", e.generate_max_len, "tokens of a block").within(count(1)).of_mode(strided),
    key("ebft.n_samples_per_prompt", e.n_samples_per_prompt, "samples of a block").within(count(1)).of_mode(strided),
    key("ebft.min_completion_prefix", e.min_completion_prefix, "tokens of an answer before its first anchor").within(at_least(0))
        .of_mode(strided),
    key("ebft.temperature", e.temperature, "of the blocks' tokens").within(at_least(0).meaning("0 = the most likely one")).of_mode(strided),
    key("ebft.top_p", e.top_p, "share of the probability that blocks are drawn from").within(fraction.meaning("0 = the most likely token, "
        "1 = all")).of_mode(strided),
    key("ebft.mask_thinking_ce", e.mask_thinking_ce, "thoughts have no likelihood term (blocks: `ebft_reasoning.transform_strided`)"),
    key("ebft.pack_documents", e.pack_documents, "`ebft_pretrain.transform`: texts one after the other, an end token between them, in "
        "chunks of `sequence_len`").of_mode(strided),
    key("ebft.document_masking", e.document_masking, "texts of a chunk do not see each other").of_mode(strided),
    key("ebft.save_rollouts", e.save_rollouts, "`ebft_rollouts.jsonl` in `output_dir` (ours)"),
  };
}

// The top-level key that strided runs read.
[[nodiscard]] inline Key document_length_key(EbftConfig& e) {
  return key("sequence_len", e.sequence_len, "strided: tokens of a document at most").within(count(1));
}
// clang-format on

}  // namespace rlalgo::config
