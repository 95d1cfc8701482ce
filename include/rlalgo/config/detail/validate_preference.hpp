// What must hold between the values of a preference configuration.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/refusals.hpp>
#include <rlalgo/config/validate.hpp>

namespace rlalgo::config::detail {

[[nodiscard]] inline Names objectives_with_scores() {
  Names out;
  for (const PairObjective& row : pair_objectives())
    if (row.uses_scores) out.supported.emplace_back(row.name);
  return out;
}

inline void validate_preference(const RunConfig& c, Refusals& refusals) {
  const Validator rules(c, refusals);
  const PreferenceConfig& p = c.preference;
  const Recipe& recipe = recipe_of(c);
  const auto conflict = [&](const std::string& what, const std::string& key, const std::string& remedy) {
    refusals.add(8, {.what = what, .where = c.place(key), .remedy = remedy});
  };
  const std::string beta = c.was_set("trl.beta")   ? "trl.beta"
                           : c.was_set("rl_beta")  ? "rl_beta"
                           : c.was_set("dpo_beta") ? "dpo_beta"
                                                   : "orpo_alpha";
  rules.range(beta, c.beta, c.beta > 0 && std::isfinite(c.beta), "more than 0");
  if (!p.dpo_loss_weights.empty()) {
    if (p.dpo_loss_type.empty())
      conflict("dpo_loss_weights without dpo_loss_type", "dpo_loss_weights", "name the losses in dpo_loss_type");
    else if (p.dpo_loss_type.size() != p.dpo_loss_weights.size())
      refusals.add(8, {.what = "dpo_loss_weights does not match dpo_loss_type",
                       .found = std::to_string(p.dpo_loss_weights.size()) + " weights for " +
                                std::to_string(p.dpo_loss_type.size()) + " losses",
                       .where = c.place("dpo_loss_weights"),
                       .remedy = "give one weight per loss"});
  }
  const std::vector<PairObjective> objectives = pair_objectives_of(c);
  const double epsilon = p.dpo_label_smoothing;
  bool below_half = recipe.loss == PreferenceFamilyLoss::contrastive;
  for (const PairObjective& objective : objectives) {
    if (objective.smoothing == Smoothing::positive)
      rules.range("dpo_label_smoothing", epsilon, epsilon > 0,
                  "more than 0 for " + std::string(objective.name) + " (0.001 is usual)");
    below_half = below_half || objective.smoothing == Smoothing::below_half;
  }
  if (below_half)
    rules.range("dpo_label_smoothing", epsilon, epsilon < 0.5, "less than 0.5: beyond it labels are more often wrong");
  for (const PairObjective& objective : objectives) {
    const std::string name(objective.name);
    if (p.dpo_use_weighting && !objective.per_pair)
      conflict("dpo_use_weighting does not go with " + name + ": pairs are not compared one by one",
               "dpo_use_weighting", "remove one of them");
    if (p.f_divergence_type != "reverse_kl" && !objective.uses_scores)
      conflict("trl.f_divergence_type does not go with " + name + ": it reads plain log-ratios",
               "trl.f_divergence_type", "use it with " + detail::listed(objectives_with_scores()));
  }
  if (needs_mismatched(c) && c.micro_batch_size * c.gradient_accumulation_steps < 2)
    refusals.add(11, {.what = "rl: " + c.rl + " needs at least two rows per optimizer step",
                      .found = "micro_batch_size 1 × gradient_accumulation_steps 1",
                      .where = c.place("micro_batch_size"),
                      .remedy = "raise one of them: each row is compared with another row's completion"});
  if (!recipe.takes_warmup_ratio && c.warmup_ratio && *c.warmup_ratio != 0.0)
    conflict("warmup_ratio does not go with rl: " + c.rl, "warmup_ratio", "set warmup_steps");
  if (p.sync_ref_model) {
    if (p.precompute_ref_log_probs)
      conflict("trl.sync_ref_model does not go with precompute_ref_log_probs", "trl.sync_ref_model",
               "remove one: a synced reference changes");
    rules.synced_reference(c.was_set("adapter"));
  }
  if (c.dataset_exact_deduplication && p.skip_prepare_dataset)
    conflict("dataset_exact_deduplication does not go with skip_prepare_dataset", "skip_prepare_dataset",
             "remove one of them");
}

}  // namespace rlalgo::config::detail
