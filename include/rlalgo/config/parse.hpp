// From a configuration tree to a checked RunConfig.
//
// Order: the recipe first (a file for another recipe is refused before its keys are judged), then every key, then the
// relations between them (config/validate.hpp). Nothing of the file is dropped: a key is read, or named in a warning,
// or an error. What is refused is gathered, and raised at the end (config/refusals.hpp). In paths ~ is the home directory.
//
// Errors (usage): [rlalgo.config.7] a required key is missing; [.8] two keys that do not go together; [.9] the recipe
// is not in this build; and those of document.hpp, overrides.hpp, reader.hpp, validate.hpp.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_adapter.hpp>
#include <rlalgo/config/detail/read_ebft.hpp>
#include <rlalgo/config/detail/read_nemo_gym.hpp>
#include <rlalgo/config/detail/read_plugins.hpp>
#include <rlalgo/config/detail/read_preference.hpp>
#include <rlalgo/config/detail/read_related.hpp>
#include <rlalgo/config/detail/read_sharding.hpp>
#include <rlalgo/config/detail/read_training.hpp>
#include <rlalgo/config/detail/read_trl.hpp>
#include <rlalgo/config/detail/validate_asynchronous.hpp>
#include <rlalgo/config/detail/validate_preference.hpp>
#include <rlalgo/config/device.hpp>
#include <rlalgo/config/document.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/names_elsewhere.hpp>
#include <rlalgo/config/overrides.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/validate.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/home_path.hpp>

namespace rlalgo::config {

namespace detail {

// Without a recipe nothing can be judged. A word that is nearly one is taken for it, so that the rest is.
inline void read_recipe(Reader& reader, RunConfig& config, const std::string& file) {
  const Names names = names_of(recipes(), &Recipe::supported);
  if (!reader.read_choice("rl", config.rl, names.known)) {
    const Node* const node = reader.section().find("rl");
    if (node == nullptr || node->kind == Kind::null)
      core::raise_usage("config", 7,
                        {.what = "rl is missing",
                         .expected = "rl: grpo",
                         .where = file,
                         .remedy = "supervised fine-tuning is not what this program does"});
    config.rl = node->scalar() ? core::nearest_name(node->text, names.supported) : "";
    if (config.rl.empty()) reader.findings().refusals.raise();
  }
  std::string supported;
  for (const std::string& name : names.supported) {
    if (name == config.rl) return;
    supported += (supported.empty() ? "" : ", ") + name;
  }
  core::raise_usage("config", 9,
                    {.what = "this build has no recipe rl: " + config.rl,
                     .expected = supported,
                     .where = reader.section().find("rl")->place.text()});
}

// What a recipe changes about the defaults.
inline void preset_recipe(RunConfig& config) {
  const Recipe& recipe = recipe_of(config);
  config.beta = recipe.beta;
  config.trl.num_generations = recipe.num_generations;
  config.trl.loss_type = recipe.loss_type;
  config.trl.multi_objective_aggregation = recipe.aggregation;
  config.preference.dpo_loss_type.assign(recipe.pair_objective.empty() ? 0 : 1, std::string(recipe.pair_objective));
  if (const auto losses = losses_of(recipe); !losses.empty()) config.preference.loss_type = losses.front().name;
}

// `beta`: trl.beta, else rl_beta, else dpo_beta (its old name), else the recipe's default.
inline void read_beta(Reader& reader, RunConfig& config) {
  reader.read("rl_beta", config.rl_beta);
  std::optional<double> old_name;
  if (reader.read("dpo_beta", old_name)) reader.findings().warnings.push_back("dpo_beta is now rl_beta");
  if (!config.rl_beta || *config.rl_beta == 0.0) config.rl_beta = old_name ? old_name : config.rl_beta;
  std::optional<double> top;
  if (reader.read("beta", top) && (!config.trl.beta || *config.trl.beta != *top))
    reader.refuse(8, {.what = "beta is not a top-level key",
                      .where = reader.section().find("beta")->place.text(),
                      .remedy = "write it as trl.beta"});
  if (config.trl.beta)
    config.beta = *config.trl.beta;
  else if (config.rl_beta)
    config.beta = *config.rl_beta;
}

// Full key → effective value of every key that was read and has a value. One `beta`, however it was written; lists of
// datasets as they are written.
inline data::Json effective_settings(const RunConfig& config, const Findings& findings) {
  data::Json out = data::Json::object();
  for (const auto& [key, value] : findings.values)
    if (data::Json json = value(); !json.is_null()) out[key] = std::move(json);
  for (const char* spelling : {"rl_beta", "trl.beta"}) out.erase(spelling);
  out["beta"] = config.beta;
  if (!device_of(config).is_cpu()) out["device"] = c10::DeviceTypeName(device_of(config).type(), /*lower_case=*/true);
  out["sum_order"] = sum_order_of(config) == distributed::SumOrder::library ? "nccl" : "ranks";
  for (const char* list : {"datasets", "test_datasets"})
    if (config.keys.contains(list) && !config.keys[list].is_null()) out[list] = config.keys[list];
  return out;
}

// Of the card of a dataset (data/dataset_folder.hpp).
inline std::string yaml_as_json(const std::string& yaml, const std::string& where) {
  return to_json(parse_document(yaml, where).root).dump();
}

// Every key that is a path: ~/x and ~user/x.
inline void expand_homes(RunConfig& config, Refusals& refusals) {
  const auto expand = [&](const std::string& key, std::string& path) {
    refusals.judge([&] { path = os::expand_home(path, config.place(key)); });
  };
  for (const Key& row : keys_of(config))
    if (row.path) row.target.each_text(row.target.at, [&](std::string& path) { expand(std::string(row.name), path); });
  if (config.chat_template_jinja && config.chat_template_jinja->starts_with("~/"))
    expand("chat_template_jinja", *config.chat_template_jinja);
  for (auto* list : {&config.datasets, &config.test_datasets})
    for (DatasetConfig& entry : *list)
      refusals.judge([&] {
        entry.source.yaml_to_json = &yaml_as_json;
        entry.source.path = os::expand_home(entry.source.path, entry.where);
        for (std::string& file : entry.source.data_files) file = os::expand_home(file, entry.where);
        for (auto& [split, files] : entry.source.split_files)
          for (std::string& file : files) file = os::expand_home(file, entry.where);
      });
}

inline std::vector<std::string> with_prefix(const std::vector<std::string>& names, const std::string& prefix) {
  std::vector<std::string> out;
  for (const std::string& name : names) out.push_back(prefix + name);
  return out;
}

inline void require_key(const RunConfig& config, const std::string& key, const std::string& example,
                        Refusals& refusals) {
  if (config.was_set(key)) return;
  refusals.add(7, {.what = key + " is missing", .expected = example, .where = config.file});
  refusals.distrust(key);
}

// The keys that a run cannot do without.
inline void require_keys(const RunConfig& config, Refusals& refusals) {
  require_key(config, "base_model", "base_model: a model directory", refusals);
  if (!refusals.distrusts("nemo_gym_enabled") && !refusals.distrusts("trl.environment_factory")) {
    const bool prompted = config.nemo_gym.enabled || config.trl.prompts_itself();
    if (config.trl.prompts_itself() && !config.was_set("datasets"))
      require_key(config, "max_steps", "max_steps: 100 (without datasets there is no epoch to count)", refusals);
    if (!prompted) require_key(config, "datasets", "datasets: [{path: rows.jsonl}]", refusals);
    if (!is_preference(config) && !matches_features(config) && !config.trl.has_environment() &&
        !config.nemo_gym.enabled)
      require_key(config, "trl.reward_funcs", "trl: {reward_funcs: [rewards.correct]}", refusals);
  }
  require_key(config, "learning_rate", "learning_rate: 1e-6", refusals);
}

// A share of a device's memory for generation, where nothing takes one.
inline void say_unused_memory_share(const RunConfig& config, const Node* section, Findings& findings) {
  if (!config.trl.vllm_gpu_memory_utilization) return;
  const bool cpu = device_of(config).is_cpu();
  if (!cpu && !is_strided(config)) return;
  findings.warnings.push_back("trl.vllm_gpu_memory_utilization (" +
                              section->find("vllm_gpu_memory_utilization")->place.text() + ") has no effect: " +
                              (cpu ? "on the CPU keys and values take what completions need, and training has it back"
                                   : "keys and values of blocks take what one document needs"));
}

inline void say_unused_invariance(const RunConfig& config, const Node* section, Findings& findings) {
  if (!config.trl.generation_invariant) return;
  const bool cpu = device_of(config).is_cpu();
  if (!cpu && !is_strided(config)) return;
  findings.warnings.push_back("trl.generation_invariant (" + section->find("generation_invariant")->place.text() +
                              ") has no effect: " +
                              (cpu ? "on the CPU the numbers of a completion never depend on what is computed with it"
                                   : "blocks of a document are computed by themselves"));
}

// Every key, and what is left over.
inline void read_keys(Reader& reader, RunConfig& config, bool preference, int ranks) {
  apply_removed(reader, removed_keys());

  static const Node empty_section = [] {
    Node node;
    node.kind = Kind::mapping;
    return node;
  }();
  const Node* section = reader.take("trl");
  Reader trl(section != nullptr ? *section : empty_section, "trl.", reader.findings());
  preset_recipe(config);
  config.trl.agents = !preference && agents_play(reader.section());
  if (preference)
    read_preference(reader, trl, config);
  else
    read_trl(trl, config.trl);
  if (matches_features(config)) read_ebft(reader, config.ebft, config.file);

  read_device(reader, config, ranks);
  say_unused_memory_share(config, section, reader.findings());
  say_unused_invariance(config, section, reader.findings());
  read_model(reader, config);
  read_adapter(reader, config);
  read_data(reader, config);
  read_optimization(reader, config);
  read_cadence(reader, config);
  read_beta(reader, config);
  if (preference) read_preference_beta(reader, config);
  read_related_keys(reader, config);
  read_nemo_gym(reader, config);
  ShardingReader(reader, config).read();
  read_plugins(reader);
  apply_lacking(reader, lacking_keys());
  apply_idle(reader, idle_keys());
  apply_prefixes(reader, idle_prefixes());
  if (!preference)
    for (Reader* section : {&reader, &trl})
      say_idle(*section, preference_keys(config.preference, {}),
               "it concerns learning from preferences (rl: dpo, kto …)");
  reader.recognise("strict");

  const Answers answers = [&](const std::string& key) { return written_here(key, config.rl); };
  trl.finish(reader.known(), answers);
  reader.finish(with_prefix(trl.known(), "trl."), answers);
}

}  // namespace detail

// What else is judged before anything is refused: what is found by what keys name (config/places.hpp).
using MoreJudgements = std::function<void(const RunConfig&, Refusals&)>;

// Reads every key of `document` (overrides already applied), for a run of so many ranks (config/ranks.hpp).
[[nodiscard]] inline RunConfig parse_run_config(const Document& document, int ranks = 1,
                                                const MoreJudgements& more = {}) {
  RunConfig config;
  config.file = document.file;
  config.keys = to_json(document.root);
  Findings findings;
  findings.fields = std::as_bytes(std::span(&config, 1));
  findings.warnings = document.warnings;
  Refusals& refusals = findings.refusals = Refusals(document.file);
  Reader reader(document.root, "", findings);
  reader.read("allow_unsupported", findings.allow_unsupported);
  detail::read_recipe(reader, config, document.file);
  const bool preference = is_preference(config);
  const bool read = refusals.judge_own([&] { detail::read_keys(reader, config, preference, ranks); });
  if (!read) refusals.raise();  // some keys were not read: nothing more can be said

  config.given = findings.given;
  detail::warn_of_no_evaluation(reader, config);
  detail::expand_homes(config, refusals);
  detail::require_keys(config, refusals);
  const bool spread = refusals.judge([&] { spread_over(config, ranks); });
  if (!spread) refusals.distrust("gradient_accumulation_steps");  // that of all ranks is not known
  validate(config, refusals);
  detail::refuse_ends_of_blocks(config, refusals);
  detail::check_moved_momentum(config, refusals);
  if (preference)
    detail::validate_preference(config, refusals);
  else
    detail::validate_asynchronous(config, refusals);
  refusals.judge([&] { check_device(config); });
  if (spread) refusals.judge([&] { check_sharding(config, ranks, findings.warnings); });
  if (more) more(config, refusals);
  refusals.raise();
  config.settings = detail::effective_settings(config, findings);
  config.warnings = findings.warnings;
  if (!preference)
    for (std::string& text : detail::asynchronous_warnings(config)) config.warnings.push_back(std::move(text));
  if (config.trl.skip_zero_advantage_batches && !idle_rows_are_free(config))
    config.warnings.push_back(
        "trl.skip_zero_advantage_batches has no effect: with a KL penalty, an entropy bonus, top_entropy_quantile or "
        "loss_type bnpo, rows of advantage 0 change the gradient");
  return config;
}

// Reads, overrides and checks a configuration file.
[[nodiscard]] inline RunConfig load_run_config(const std::filesystem::path& path,
                                               std::span<const std::string> overrides = {}, int ranks = 1,
                                               const MoreJudgements& more = {}) {
  Document document = load_document(os::expand_home(path.string()));
  apply_overrides(document, overrides);
  return parse_run_config(document, ranks, more);
}

}  // namespace rlalgo::config
