// The rows of config/methods.hpp that a configuration chose.
//
// Errors (usage): [rlalgo.config.9] no such recipe; [rlalgo.config.22] no such policy-gradient loss, level, estimator or
// aggregation; [rlalgo.config.23] no such preference loss.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>

namespace rlalgo::config {

namespace detail {

inline std::string listed(const Names& names) {
  std::string out;
  for (std::size_t k = 0; k < names.supported.size(); ++k)
    out += (k == 0 ? "" : k + 1 == names.supported.size() ? " or " : ", ") + names.supported[k];
  return out;
}

template <class Row>
const Row& row_of(const std::vector<Row>& rows, std::string_view name, int number, const std::string& what,
                  const std::string& where) {
  if (const Row* row = find_row(rows, name); row != nullptr) return *row;
  core::raise_usage("config", number,
                    {.what = "there is no " + what + " of that name",
                     .found = std::string(name),
                     .expected = listed(names_of(rows)),
                     .where = where});
}

// The row whose part the recipe fixes, else the one that the key names.
template <class Row, class Part>
const Row& row_of_part(const std::vector<Row>& rows, Part part) {
  return *std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.part == part; });
}

}  // namespace detail

// The rows that a configuration chose.
[[nodiscard]] inline const Recipe& recipe_of(const RunConfig& c) {
  return detail::row_of(recipes(), c.rl, 9, "recipe", c.place("rl"));
}
// Whether the loss corrects for the generator's log-probs (loss::SamplingCorrection).
[[nodiscard]] inline bool corrects_sampling(const RunConfig& c) {
  return c.trl.may_correct() && c.trl.vllm_importance_sampling_correction && !recipe_of(c).plain;
}
[[nodiscard]] inline const PolicyObjective& objective_of(const RunConfig& c) {
  return detail::row_of(policy_objectives(), c.trl.loss_type, 22, "policy-gradient loss", c.place("trl.loss_type"));
}
[[nodiscard]] inline const Estimator& estimator_of(const RunConfig& c) {
  if (const auto fixed = recipe_of(c).estimator) return detail::row_of_part(estimators(), *fixed);
  return detail::row_of(estimators(), c.trl.advantage_estimator, 22, "advantage estimator",
                        c.place("trl.advantage_estimator"));
}
[[nodiscard]] inline LevelPart level_of(const RunConfig& c) {
  if (const auto fixed = recipe_of(c).level) return *fixed;
  return detail::row_of(ratio_levels(), c.trl.importance_sampling_level, 22, "importance_sampling_level",
                        c.place("trl.importance_sampling_level"))
      .part;
}
[[nodiscard]] inline AggregationPart aggregation_of(const RunConfig& c) {
  if (const auto fixed = recipe_of(c).aggregation_part) return *fixed;
  return detail::row_of(aggregations(), c.trl.multi_objective_aggregation, 22, "aggregation",
                        c.place("trl.multi_objective_aggregation"))
      .part;
}

[[nodiscard]] inline PreferenceLoss preference_loss_of(const RunConfig& c) {
  if (c.preference.loss_type.empty()) return losses_of(recipe_of(c)).at(0);
  return detail::row_of(preference_losses(), c.preference.loss_type, 23, "preference loss", c.place("trl.loss_type"));
}

// The rows of dpo_loss_type: sigmoid where none is named.
[[nodiscard]] inline std::vector<PairObjective> pair_objectives_of(const RunConfig& c) {
  std::vector<PairObjective> out;
  for (const std::string& name : c.preference.dpo_loss_type)
    out.push_back(detail::row_of(pair_objectives(), name, 23, "preference loss", c.place("dpo_loss_type")));
  if (out.empty()) out.push_back(pair_objectives().front());
  return out;
}

// Whether rewards are those of feature matching.
[[nodiscard]] inline bool matches_features(const RunConfig& c) { return recipe_of(c).matches_features; }
[[nodiscard]] inline const MatchingEstimator& matching_estimator_of(const RunConfig& c) {
  return detail::row_of(matching_estimators(), c.ebft.advantage_estimator, 22, "advantage estimator",
                        c.place("ebft.advantage_estimator"));
}
[[nodiscard]] inline const PoolingRow& pooling_of(const RunConfig& c) {
  return detail::row_of(poolings(), c.ebft.embed_method, 22, "embed_method", c.place("ebft.embed_method"));
}
// Whether a run learns from blocks at the anchors of documents.
[[nodiscard]] inline bool is_strided(const RunConfig& c) {
  return matches_features(c) &&
         detail::row_of(matching_modes(), c.ebft.mode, 22, "ebft.mode", c.place("ebft.mode")).strided;
}

// Completions of a prompt at least: two where they are compared with each other.
[[nodiscard]] inline std::int64_t fewest_generations(const RunConfig& c) {
  return matches_features(c) && !matching_estimator_of(c).compares ? 1 : 2;
}

// Whether a recipe learns from a dataset of preferences, not from its own completions.
[[nodiscard]] inline bool is_preference(const RunConfig& c) { return !recipe_of(c).generates; }

// Whether a preference recipe compares with a reference model.
[[nodiscard]] inline bool needs_reference(const RunConfig& c) { return recipe_of(c).needs_reference; }

// Whether the loss compares with mismatched completions.
[[nodiscard]] inline bool needs_mismatched(const RunConfig& c) {
  return recipe_of(c).loss == PreferenceFamilyLoss::prospect && preference_loss_of(c).mismatched;
}

// Rows of advantage 0 do not change the gradient.
[[nodiscard]] inline bool idle_rows_are_free(const RunConfig& c) {
  return c.beta == 0.0 && !matches_features(c) && !c.trl.pays_entropy() && objective_of(c).idle_rows_are_free &&
         c.trl.top_entropy_quantile == 1.0;
}

}  // namespace rlalgo::config
