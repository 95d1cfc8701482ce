// The keys that methods read, one row each: what it means, its range, and what another method does that meets it.
//
// Ranges that depend on another key, and keys that are no numbers, are judged where they are read (config/validate.hpp,
// config/detail/). docs/configuration.md lists every key of this table.
#pragma once

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config {

// The finite numbers from `low` to `high`.
struct Range {
  std::string_view expected;  // as an error text says it
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false;  // `low` itself is outside; likewise `high`
  bool open_high = false;
  [[nodiscard]] bool holds(double value) const {
    if (!std::isfinite(value)) return false;
    return (open_low ? value > low : value >= low) && (open_high ? value < high : value <= high);
  }
};

struct MethodKey {
  std::string_view name;  // full, as in YAML
  std::string_view meaning;
  bool exclusive = false;  // another recipe that meets it refuses it; else it has no effect there
  Range range = {};        // of `value`
  std::optional<double> (*value)(const RunConfig&) = nullptr;  // null: no number, or no range of its own
};

[[nodiscard]] inline const std::vector<MethodKey>& method_keys() {
  using Value = std::optional<double>;
  using C = const RunConfig&;
  static constexpr Range positive{"more than 0", 0.0, std::numeric_limits<double>::infinity(), true};
  static constexpr Range not_negative{"0 or more", 0.0};
  static constexpr Range finite{"a finite number"};
  static constexpr Range counted{"1 or more", 1.0, 1e9};
  static const std::vector<MethodKey> keys = {
      {"trl.loss_type", "surrogate and reduction, or the loss of a preference recipe", true},
      {"trl.scale_rewards", "what divides an advantage: group, batch, none", true},
      {"trl.epsilon",
       "how far the ratio may move before it is clipped",
       false,
       {"more than 0, at most 1", 0.0, 1.0, true},
       [](C c) -> Value { return c.trl.epsilon; }},
      {"trl.epsilon_high", "the same upwards; epsilon unless set", false, positive,
       [](C c) -> Value { return c.trl.epsilon_high; }},
      {"trl.delta",
       "cap of the ratio where the advantage is negative",
       true,
       {"more than 1 (usually more than 1 + epsilon_high)", 1.0, std::numeric_limits<double>::infinity(), true},
       [](C c) -> Value { return c.trl.delta; }},
      {"trl.importance_sampling_level", "what one ratio belongs to: token, sequence, sequence_token", true},
      {"trl.top_entropy_quantile",
       "share of tokens, by entropy, that the surrogate trains on",
       true,
       {"from 0 to 1 (1 = all tokens)", 0.0, 1.0},
       [](C c) -> Value { return c.trl.top_entropy_quantile; }},
      {"trl.off_policy_mask_threshold",
       "completions of negative advantage that moved further are dropped",
       true,
       {"a finite number of nats per token"},
       [](C c) -> Value { return c.trl.off_policy_mask_threshold; }},
      {"trl.sapo_temperature_pos", "steepness of the gate where the advantage is positive", false, positive,
       [](C c) -> Value { return c.trl.sapo_temperature_pos; }},
      {"trl.sapo_temperature_neg", "steepness of the gate elsewhere", false, positive,
       [](C c) -> Value { return c.trl.sapo_temperature_neg; }},
      {"trl.vespo_k_pos", "κ where the advantage is positive"},
      {"trl.vespo_lambda_pos", "λ where the advantage is positive"},
      {"trl.vespo_k_neg", "κ elsewhere"},
      {"trl.vespo_lambda_neg", "λ elsewhere"},
      {"trl.advantage_estimator", "how rewards become advantages", true},
      {"trl.entropy_coef", "weight of the entropy bonus", true, finite,
       [](C c) -> Value { return c.trl.entropy_coef; }},
      {"trl.use_adaptive_entropy", "the weight follows a target entropy", true},
      {"trl.multi_objective_aggregation", "how several rewards become one advantage", true},
      {"trl.reward_clip_range", "bounds of a reward before the penalty is taken off", true},
      {"trl.normalize_advantages", "leave-one-out advantages are whitened over the batch"},
      {"dpo_loss_type", "the objectives of a pair", true},
      {"dpo_loss_weights", "one weight per objective", true},
      {"dpo_use_weighting", "pairs weighted by the policy (WPO)", true},
      {"dpo_use_liger_kernel", "has no effect: kernels are chosen by the program", true},
      {"kto_desirable_weight", "weight of answers marked good", true, not_negative,
       [](C c) -> Value { return c.preference.kto_desirable_weight; }},
      {"kto_undesirable_weight", "weight of answers marked bad", true, not_negative,
       [](C c) -> Value { return c.preference.kto_undesirable_weight; }},
      {"cpo_alpha", "weight of the likelihood term", true, not_negative,
       [](C c) -> Value { return c.preference.cpo_alpha; }},
      {"simpo_gamma", "margin that chosen should have over rejected", true, not_negative,
       [](C c) -> Value { return c.preference.simpo_gamma; }},
      {"precompute_ref_log_probs", "the reference's log-probs are computed before training", true},
      {"rl_adapter_ref_model", "false: the bare base is the reference of a continued adapter", true},
      {"trl.f_divergence_type", "how far from the reference: reverse_kl, forward_kl, js_divergence, alpha_divergence",
       true},
      {"trl.f_alpha_divergence_coef", "α of alpha_divergence", true},
      {"trl.ld_alpha",
       "weight of the tokens beyond the shorter answer",
       true,
       {"from 0 to 1", 0.0, 1.0},
       [](C c) -> Value { return c.preference.ld_alpha; }},
      {"trl.discopop_tau", "temperature of discopop", true, positive,
       [](C c) -> Value { return c.preference.discopop_tau; }},
      {"trl.alpha", "shape of AlphaPO", true, finite, [](C c) -> Value { return c.preference.alpha; }},
      {"trl.sync_ref_model", "the reference follows the policy", true},
      {"ebft.alignment_coef", "weight of the alignment with the ground truth", false, finite,
       [](C c) -> Value { return c.ebft.alignment_coef; }},
      {"ebft.diversity_coef", "weight of the similarity among the samples", false, finite,
       [](C c) -> Value { return c.ebft.diversity_coef; }},
      {"ebft.rl_coef", "weight of the policy loss", false, finite, [](C c) -> Value { return c.ebft.rl_coef; }},
      {"ebft.ce_coef", "weight of the likelihood of ground truth or document; 0: not computed", false, not_negative,
       [](C c) -> Value { return c.ebft.ce_coef; }},
      {"ebft.adaptive_max_tokens", "completions are limited by the longest ground truth of their batch"},
      {"ebft.gt_length_multiplier",
       "of the ground truth's tokens, for that limit",
       false,
       {"0.1 or more", 0.1},
       [](C c) -> Value { return c.ebft.gt_length_multiplier; }},
      {"ebft.stride", "tokens between anchors", false, counted, [](C c) -> Value { return c.ebft.stride; }},
      {"ebft.context_length", "tokens before the first anchor", false, counted,
       [](C c) -> Value { return c.ebft.context_length; }},
      {"ebft.generate_max_len", "tokens of a block", false, counted,
       [](C c) -> Value { return c.ebft.generate_max_len; }},
      {"ebft.n_samples_per_prompt", "samples of a block", false, counted,
       [](C c) -> Value { return c.ebft.n_samples_per_prompt; }},
      {"ebft.min_completion_prefix", "tokens of an answer before its first anchor", false, not_negative,
       [](C c) -> Value { return c.ebft.min_completion_prefix; }},
      {"ebft.temperature", "of the blocks' tokens; 0: the most likely one", false, not_negative,
       [](C c) -> Value { return c.ebft.temperature; }},
      {"ebft.top_p",
       "share of the probability that blocks are drawn from",
       false,
       {"from 0 (the most likely token) to 1 (all)", 0.0, 1.0},
       [](C c) -> Value { return c.ebft.top_p; }},
      {"ebft.mask_thinking_ce", "thoughts have no likelihood term (strided: ebft_reasoning.transform_strided)"},
      {"ebft.pack_documents", "texts one after the other, an end token between them, in chunks of sequence_len"},
      {"ebft.document_masking", "texts of a chunk do not see each other"},
  };
  return keys;
}

// The recipes that read `key` and learn from the same kind of data as `recipe`.
[[nodiscard]] inline Words readers_of(std::string_view key, const Recipe& recipe) {
  Words out;
  for (const Recipe& row : recipes())
    if (row.generates == recipe.generates && reads(row, key)) out.push_back(row.name);
  return out;
}

// The keys that `recipe` refuses: another recipe of its kind reads them, and nothing would come of them here.
[[nodiscard]] inline std::vector<MethodKey> refused_keys(const Recipe& recipe) {
  std::vector<MethodKey> out;
  for (const MethodKey& key : method_keys())
    if (key.exclusive && !reads(recipe, key.name) && !readers_of(key.name, recipe).empty()) out.push_back(key);
  return out;
}

}  // namespace rlalgo::config
