// What preference methods are told: axolotl's top-level keys, and TRL's argument names in the `trl:` section.
//
// A field has the name of its key. Unset numbers have TRL's defaults; beta is RunConfig::beta.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rlalgo::config {

struct PreferenceConfig {
  // Loss
  std::vector<std::string> dpo_loss_type;  // names of pair_objectives() in config/methods.hpp; empty = sigmoid
  std::vector<double> dpo_loss_weights;    // empty = all 1
  double dpo_label_smoothing = 0.0;        // also trl.label_smoothing
  bool dpo_use_weighting = false;          // WPO
  std::string f_divergence_type = "reverse_kl";
  double f_alpha_divergence_coef = 0.5;
  std::optional<double> ld_alpha;
  double discopop_tau = 0.05;
  std::string loss_type;  // trl.loss_type of kto, cpo and simpo; empty = the first of its recipe (config/methods.hpp)
  double kto_desirable_weight = 1.0;
  double kto_undesirable_weight = 1.0;
  double cpo_alpha = 1.0;
  double simpo_gamma = 0.5;
  double alpha = 0.0;  // AlphaPO's shape

  // Reference
  bool precompute_ref_log_probs = false;
  std::optional<bool> rl_adapter_ref_model;  // false: the bare base is the reference of a continued adapter, too
  std::optional<std::int64_t> precompute_ref_batch_size;  // micro_batch_size unless set
  bool sync_ref_model = false;
  double ref_model_mixup_alpha = 0.6;
  std::int64_t ref_model_sync_steps = 512;

  // Data
  std::int64_t sequence_len = 512;
  std::string excess_length_strategy = "drop";  // drop, truncate, raise
  std::string truncation_mode = "keep_start";   // keep_start, keep_end
  bool skip_prepare_dataset = false;            // no length filter, no deduplication
  std::optional<std::string> dataset_prepared_path;
  bool keeps_prepared = true;  // derived: false where nothing is to be written (a dry run)
};

}  // namespace rlalgo::config
