// The keys of preference methods (rl: dpo, ipo, kto, orpo, simpo, cpo; config/preference_keys.hpp), and which of them go with which method.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/detail/read_rows.hpp>
#include <rlalgo/config/keys.hpp>
#include <rlalgo/config/method_of.hpp>

namespace rlalgo::config::detail {

// A key that belongs to other methods than this one is an error: it would change nothing.
inline void refuse_keys_of_others(Reader& reader, Reader& trl, const RunConfig& config) {
  const Recipe& recipe = recipe_of(config);
  for (const std::string& name : refused_keys(recipe)) {
    const bool in_section = name.starts_with("trl.");
    const Node* node = (in_section ? trl : reader).section().find(name.substr(in_section ? 4 : 0));
    if (node == nullptr || !is_on(*node)) continue;
    const std::vector<std::string> readers = readers_of(name, recipe);
    const std::string all = "rl: " + joined(readers);
    reader.refuse(8, {.what = name + " does not go with rl: " + config.rl,
                      .expected = all,
                      .where = node->place.text(),
                      .remedy = readers.size() == 1 ? "remove it, or set " + all : "remove it"});
    reader.findings().refusals.distrust(name);
  }
}

// trl.loss_type of a recipe that has none.
inline void refuse_loss_type(Reader& trl, const RunConfig& config) {
  if (!losses_of(recipe_of(config)).empty()) return;
  trl.recognise("loss_type");
  const Node* node = trl.section().find("loss_type");
  if (node == nullptr || node->kind == Kind::null) return;
  trl.refuse(8, {.what = "trl.loss_type does not go with rl: " + config.rl,
                 .where = node->place.text(),
                 .remedy = config.rl == "dpo" ? "write dpo_loss_type, a list" : "remove it"});
  trl.findings().refusals.distrust("trl.loss_type");
}

inline void read_preference_loss(Reader& reader, Reader& trl, RunConfig& config) {
  PreferenceConfig& p = config.preference;
  const Recipe& recipe = recipe_of(config);
  refuse_loss_type(trl, config);
  refuse_keys_of_others(reader, trl, config);
  if (!recipe.now_written.empty())
    reader.findings().warnings.push_back("rl: " + config.rl + " is now written " + std::string(recipe.now_written));
  const Keys rows = preference_keys(p, names_of(losses_of(recipe)));
  read_rows(reader, trl, rows);
  say_idle(reader, rows);
  say_idle(trl, rows);
  if (reader.findings().refusals.distrusts("dpo_loss_type")) p.dpo_loss_type.clear();
  if (!losses_of(recipe).empty() && !preference_loss_of(config).likelihood) p.cpo_alpha = 0.0;
  for (const Key& row : rows)
    if (row.in_use && !row.in_use().empty())
      say_unused(row.name.starts_with("trl.") ? trl : reader, row, std::string(row.in_use()));
  const std::vector<PairObjective> objectives = pair_objectives_of(config);
  const bool read_by_a_loss = recipe.loss == PreferenceFamilyLoss::contrastive ||
                              std::any_of(objectives.begin(), objectives.end(), [](const PairObjective& objective) {
                                return objective.smoothing != Smoothing::unread;
                              });
  if (p.dpo_label_smoothing != 0.0 && !read_by_a_loss)
    reader.findings().warnings.push_back(
        "dpo_label_smoothing has no effect on this loss: exo_pair, robust, aot and aot_unpaired have it "
        "(dpo_loss_type: "
        "[robust] is sigmoid with noisy labels)");
}

// What a method that needs every column cannot do without.
inline void judge_columns(Reader& reader, const RunConfig& config) {
  const bool every_column = recipe_of(config).family == data::PreferenceFamily::unpaired;
  bool unused = false;
  if (reader.read("remove_unused_columns", unused) && unused && every_column)
    reader.refuse(8, {.what = "rl: " + config.rl + " needs every column",
                      .found = "remove_unused_columns: true",
                      .where = reader.section().find("remove_unused_columns")->place.text(),
                      .remedy = "set remove_unused_columns: false"});
  bool packing = false;
  if (reader.read("eval_sample_packing", packing) && packing && every_column)
    reader.refuse(8, {.what = "eval_sample_packing does not go with rl: " + config.rl,
                      .where = reader.section().find("eval_sample_packing")->place.text(),
                      .remedy = "remove it: sequences are laid out without padding anyway"});
}

// `orpo_alpha` stands for beta, after trl.beta and rl_beta.
inline void read_preference_beta(Reader& reader, RunConfig& config) {
  std::optional<double> orpo_alpha;
  reader.read("orpo_alpha", orpo_alpha);
  if (!config.trl.beta && !config.rl_beta && orpo_alpha) config.beta = *orpo_alpha;
}

// The online keys of the section do not concern a fixed dataset.
inline void read_preference_trl(Reader& trl, RunConfig& config) {
  read_row(trl, beta_key(config.trl));
  read_row(trl, dropout_key(config.trl));
  read_row(trl, balance_key(config.trl));
  read_row(trl, template_key(config.trl));
  static constexpr Reason lacking[] = {
      {"async_prefetch use_data_producer", "nothing is generated during the training; remove the key"}};
  apply_lacking(trl, lacking);
  say_idle(trl, trl_keys(config.trl), "it concerns completions that are generated during training");
  apply_lacking(trl, lacking_trl_keys());
  apply_idle(trl, idle_trl_keys());
}

// Every key of a preference method, before the tables of keys without effect are applied.
inline void read_preference(Reader& reader, Reader& trl, RunConfig& config) {
  read_preference_loss(reader, trl, config);
  judge_columns(reader, config);
  read_preference_trl(trl, config);
}

}  // namespace rlalgo::config::detail
