// From a configuration to its datasets: which are read, and what is made of their rows.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/dataset_rows.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/load_preferences.hpp>
#include <rlalgo/assembly/load_prompts.hpp>
#include <rlalgo/assembly/prompt_tokens.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/data/preference_tokens.hpp>

namespace rlalgo::config {

[[nodiscard]] inline std::vector<std::filesystem::path> python_search_paths(const RunConfig& c) {
  return assembly::python_search_paths(std::filesystem::path(c.file));
}

[[nodiscard]] inline assembly::DatasetsConfig datasets_of(const RunConfig& c) {
  return {.train = c.datasets,
          .test = c.test_datasets,
          .held_out = c.val_set_size,
          .shuffle = c.shuffle_merged_datasets,
          .shuffle_each = c.shuffle_before_merging_datasets,
          .deduplicate = c.dataset_exact_deduplication,
          .seed = c.seed,
          .search_paths = python_search_paths(c),
          .keys = c.keys,
          .tokenizer = {c.tokenizer_config.value_or(c.base_model), {}, c.model_revision.value_or("")}};
}

[[nodiscard]] inline assembly::PromptsConfig prompts_of(const RunConfig& c) {
  return {datasets_of(c), c.trl.has_environment(), c.trl.has_turns() || c.trl.rollout_func,
          !c.trl.reward_funcs.empty()};
}

// Whose the columns of rows are.
[[nodiscard]] inline assembly::RowColumns columns_of(const RunConfig& c) {
  if (c.nemo_gym.enabled) return assembly::RowColumns::gym;
  return c.trl.has_turns() || c.trl.rollout_func ? assembly::RowColumns::players : assembly::RowColumns::prompts;
}

[[nodiscard]] inline assembly::PromptTokensConfig prompt_tokens_of(const RunConfig& c) {
  assembly::PromptTokensConfig out{
      .kwargs = c.trl.chat_template_kwargs, .columns = columns_of(c), .drop_too_long = c.excess_prompts == "drop"};
  if (matches_features(c))
    out.without_templates = "rl: ebft";
  else if (c.trl.rollout_func || c.nemo_gym.enabled)
    out.without_templates = "completions that somebody plays";
  return out;
}

namespace detail {

// Everything that decides what the tokens of preferences are, beside files and the templates of datasets.
[[nodiscard]] inline std::vector<std::string> identity_of_preferences(const RunConfig& c,
                                                                      const assembly::LanguageModel& model) {
  const PreferenceConfig& p = c.preference;
  std::vector<std::string> out = {c.rl + "|" + p.excess_length_strategy + "|" + p.truncation_mode,
                                  std::to_string(p.sequence_len) + "|" + std::to_string(p.skip_prepare_dataset),
                                  std::to_string(c.seed) + "|" + std::to_string(c.val_set_size),
                                  std::to_string(c.shuffle_merged_datasets) +
                                      std::to_string(c.shuffle_before_merging_datasets) +
                                      std::to_string(c.dataset_exact_deduplication),
                                  c.trl.chat_template_kwargs.dump(),
                                  model.chat_template ? model.chat_template->source() : ""};
  const text::TokenChanges changes = c.token_changes();
  if (changes.empty()) return out;
  out.push_back(data::Json({changes.roles, changes.tokens, changes.extra}).dump());
  out.push_back(c.added_tokens_overrides.dump());
  return out;
}

}  // namespace detail

[[nodiscard]] inline assembly::PreferencesConfig preferences_of(const RunConfig& c,
                                                                const assembly::LanguageModel& model) {
  const PreferenceConfig& p = c.preference;
  const Recipe& recipe = recipe_of(c);
  assembly::PreferencesConfig out{datasets_of(c)};
  out.tokens = {.family = recipe.family,
                .end = recipe.ends_with_id ? data::EndRule::id : data::EndRule::text,
                .max_length = p.sequence_len,
                .excess = p.excess_length_strategy == "raise"      ? data::Excess::raise
                          : p.excess_length_strategy == "truncate" ? data::Excess::truncate
                                                                   : data::Excess::drop,
                .filter = !p.skip_prepare_dataset,
                .keep_end = p.truncation_mode == "keep_end"};
  out.arena = p.dataset_prepared_path.value_or(c.output_dir);
  out.kwargs = c.trl.chat_template_kwargs;
  out.desirable_weight = p.kto_desirable_weight;
  out.undesirable_weight = p.kto_undesirable_weight;
  if (p.dataset_prepared_path && !p.skip_prepare_dataset)
    out.prepared = {.directory = *p.dataset_prepared_path,
                    .keeps = p.keeps_prepared,
                    .identity = detail::identity_of_preferences(c, model),
                    .outside = c.outside,
                    .goes_on = c.outside_kept};
  return out;
}

}  // namespace rlalgo::config
