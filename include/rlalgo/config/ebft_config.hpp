// The `ebft:` section: energy-based fine-tuning with completions (structured) or with blocks (strided).
//
// A field has the name of its key; defaults are axolotl's. Names are rows of config/methods.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rlalgo::config {

struct EbftConfig {
  std::string mode = "structured";

  // Features and rewards
  std::vector<double> feature_layers = {0.25, 0.5, 0.75};  // relative depths
  std::optional<std::string> feature_model;                // base_model's weights unless set (rlalgo's own key)
  std::string feature_normalization = "joint";             // joint, per_layer (rlalgo's own key)
  std::string embed_method = "last_token";
  bool use_whitening = false;
  std::string whitening_space = "feature";  // feature, sample (rlalgo's own key)
  double alignment_coef = 1.0;
  double diversity_coef = 1.0;

  // Loss
  double rl_coef = 1.0;
  double ce_coef = 0.0;
  bool mask_thinking_ce = false;  // rlalgo's own key: axolotl's transform reads it, its schema has it not
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
  bool pack_documents = false;      // texts one after the other in chunks of sequence_len (rlalgo's own key)
  bool document_masking = false;    // … that do not see each other (the authors' key)
  std::int64_t sequence_len = 512;  // the top-level key: tokens of a document at most

  bool save_rollouts = false;  // ebft_rollouts.jsonl (rlalgo's own key)
};

}  // namespace rlalgo::config
