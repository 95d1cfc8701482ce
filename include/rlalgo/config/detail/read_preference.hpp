// The keys of preference methods (rl: dpo, ipo, kto, orpo, simpo, cpo), and which of them go with which method.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/method_keys.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

// A key that belongs to other methods than this one is an error: it would change nothing.
inline void refuse_keys_of_others(Reader& reader, Reader& trl, const RunConfig& config) {
  const Recipe& recipe = recipe_of(config);
  for (const MethodKey& key : refused_keys(recipe)) {
    const bool in_section = key.name.starts_with("trl.");
    const Node* node = (in_section ? trl : reader).section().find(std::string(key.name.substr(in_section ? 4 : 0)));
    if (node == nullptr || !is_on(*node)) continue;
    const Words readers = readers_of(key.name, recipe);
    std::string all;
    for (const std::string_view name : readers) all += (all.empty() ? "rl: " : ", ") + std::string(name);
    reader.refuse(8, {.what = std::string(key.name) + " does not go with rl: " + config.rl,
                      .expected = all,
                      .where = node->place.text(),
                      .remedy = readers.size() == 1 ? "remove it, or set " + all : "remove it"});
    reader.findings().refusals.distrust(std::string(key.name));
  }
}

// trl.loss_type among the losses of the recipe.
inline void read_recipe_loss(Reader& trl, RunConfig& config) {
  PreferenceConfig& p = config.preference;
  const std::vector<PreferenceLoss> losses = losses_of(recipe_of(config));
  trl.recognise("loss_type");
  const Node* node = trl.section().find("loss_type");
  if (losses.empty() && node != nullptr && node->kind != Kind::null)
    trl.refuse(8, {.what = "trl.loss_type does not go with rl: " + config.rl,
                   .where = node->place.text(),
                   .remedy = reads(recipe_of(config), "dpo_loss_type") ? "write dpo_loss_type, a list" : "remove it"});
  if (losses.empty() && node != nullptr) trl.findings().refusals.distrust("trl.loss_type");
  if (losses.empty()) return;
  trl.read_choice("loss_type", p.loss_type, names_of(losses).known);
  if (!preference_loss_of(config).likelihood) p.cpo_alpha = 0.0;
}

// Names of keys that would be said twice: `key` at the top and `trl_key` in the section.
inline void read_preference_loss(Reader& reader, Reader& trl, RunConfig& config) {
  PreferenceConfig& p = config.preference;
  const Recipe& recipe = recipe_of(config);
  const std::vector<std::string> losses = names_of(pair_objectives()).known;
  if (losses_of(recipe).empty()) read_recipe_loss(trl, config);
  refuse_keys_of_others(reader, trl, config);

  if (const Node* node = reader.section().find("dpo_loss_type");
      node != nullptr && node->kind == Kind::string && !node->place.command_line())
    reader.judge("dpo_loss_type",
                 [&] { raise_type("dpo_loss_type", *node, "a list, one item per line after a dash"); });
  reader.read("dpo_loss_type", p.dpo_loss_type);
  const std::vector<std::string> named = p.dpo_loss_type;
  for (const std::string& name : named) {
    if (std::find(losses.begin(), losses.end(), name) != losses.end()) continue;
    std::string all;
    for (const std::string& known : losses) all += (all.empty() ? "" : ", ") + known;
    const std::string nearest = core::nearest_name(name, losses);
    reader.judge("dpo_loss_type", [&] {
      core::raise_usage("config", 6,
                        {.what = "the value of dpo_loss_type is not known",
                         .found = name,
                         .expected = all,
                         .where = reader.section().find("dpo_loss_type")->place.text(),
                         .remedy = nearest.empty() ? "" : "did you mean " + nearest + "?"});
    });
    p.dpo_loss_type.clear();
  }
  reader.read("dpo_loss_weights", p.dpo_loss_weights);
  reader.read("dpo_label_smoothing", p.dpo_label_smoothing);
  trl.read("label_smoothing", p.dpo_label_smoothing);
  reader.read("dpo_use_weighting", p.dpo_use_weighting);
  reader.read("kto_desirable_weight", p.kto_desirable_weight);
  reader.read("kto_undesirable_weight", p.kto_undesirable_weight);
  trl.read("desirable_weight", p.kto_desirable_weight);
  trl.read("undesirable_weight", p.kto_undesirable_weight);
  reader.read("cpo_alpha", p.cpo_alpha);
  trl.read("cpo_alpha", p.cpo_alpha);
  reader.read("simpo_gamma", p.simpo_gamma);
  trl.read("simpo_gamma", p.simpo_gamma);
  trl.read_choice("f_divergence_type", p.f_divergence_type,
                  {"reverse_kl", "forward_kl", "js_divergence", "alpha_divergence"});
  trl.read("f_alpha_divergence_coef", p.f_alpha_divergence_coef);
  trl.read("ld_alpha", p.ld_alpha);
  trl.read("discopop_tau", p.discopop_tau);
  trl.read("alpha", p.alpha);
  if (!losses_of(recipe).empty()) read_recipe_loss(trl, config);
  if (!recipe.now_written.empty())
    reader.findings().warnings.push_back("rl: " + config.rl + " is now written " + std::string(recipe.now_written));
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

inline void read_preference_data(Reader& reader, Reader& trl, RunConfig& config) {
  PreferenceConfig& p = config.preference;
  reader.read("sequence_len", p.sequence_len);
  trl.read("max_length", p.sequence_len);
  reader.record("excess_length_strategy", p.excess_length_strategy);
  std::string strategy;
  if (reader.read("excess_length_strategy", strategy)) {
    std::transform(strategy.begin(), strategy.end(), strategy.begin(), [](unsigned char c) { return std::tolower(c); });
    static const std::vector<std::string> known = {"drop", "truncate", "raise"};
    if (std::find(known.begin(), known.end(), strategy) == known.end())
      reader.refuse(6, {.what = "the value of excess_length_strategy is not known",
                        .found = strategy,
                        .expected = "drop, truncate or raise",
                        .where = reader.section().find("excess_length_strategy")->place.text()});
    else
      p.excess_length_strategy = strategy;
  }
  trl.read_choice("truncation_mode", p.truncation_mode, {"keep_start", "keep_end"});
  reader.read("skip_prepare_dataset", p.skip_prepare_dataset);
  reader.read("dataset_prepared_path", p.dataset_prepared_path);
  reader.read("precompute_ref_log_probs", p.precompute_ref_log_probs);
  reader.read("rl_adapter_ref_model", p.rl_adapter_ref_model);
  trl.read("precompute_ref_batch_size", p.precompute_ref_batch_size);
  trl.read("sync_ref_model", p.sync_ref_model);
  trl.read("ref_model_mixup_alpha", p.ref_model_mixup_alpha);
  trl.read("ref_model_sync_steps", p.ref_model_sync_steps);
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
  for (const char* key : {"dpo_use_liger_kernel", "dpo_padding_free", "pad_to_multiple_of"}) {
    const RecognisedKey idle{key, "sequences have no padding and logits are never materialised"};
    apply_idle(reader, std::span(&idle, 1));
  }
  for (const char* key : {"padding_free", "disable_dropout", "use_logits_to_keep"}) {
    const RecognisedKey idle{key, "sequences have no padding, logits are never materialised, nothing is dropped out"};
    apply_idle(trl, std::span(&idle, 1));
  }
}

// `orpo_alpha` stands for beta, after trl.beta and rl_beta.
inline void read_preference_beta(Reader& reader, RunConfig& config) {
  std::optional<double> orpo_alpha;
  reader.read("orpo_alpha", orpo_alpha);
  if (!config.trl.beta && !config.rl_beta && orpo_alpha) config.beta = *orpo_alpha;
}

// The online keys of the section do not concern a fixed dataset.
inline void read_preference_trl(Reader& trl, RunConfig& config) {
  trl.read("beta", config.trl.beta);
  trl.read("router_aux_loss_coef", config.trl.router_aux_loss_coef);
  static constexpr std::string_view online = "it concerns completions that are generated during training";
  static const std::vector<RecognisedKey> idle = {{"reward_funcs", online},
                                                  {"reward_weights", online},
                                                  {"environment_factory", online},
                                                  {"tools", online},
                                                  {"rollout_func", online},
                                                  {"reward_timeout", online},
                                                  {"reward_num_workers", online},
                                                  {"reward_kwargs", online},
                                                  {"reward_max_retries", online},
                                                  {"reward_on_failure", online},
                                                  {"scale_rewards", online},
                                                  {"multi_objective_aggregation", online},
                                                  {"num_generations", online},
                                                  {"num_generations_eval", online},
                                                  {"generation_batch_size", online},
                                                  {"steps_per_generation", online},
                                                  {"num_iterations", online},
                                                  {"shuffle_dataset", online},
                                                  {"max_completion_length", online},
                                                  {"temperature", online},
                                                  {"top_p", online},
                                                  {"top_k", online},
                                                  {"min_p", online},
                                                  {"repetition_penalty", online},
                                                  {"generation_kwargs", online},
                                                  {"generation_quantization", online},
                                                  {"epsilon", online},
                                                  {"epsilon_high", online},
                                                  {"delta", online},
                                                  {"importance_sampling_level", online},
                                                  {"mask_truncated_completions", online},
                                                  {"use_bias_correction_kl", online},
                                                  {"top_entropy_quantile", online},
                                                  {"advantage_estimator", online},
                                                  {"entropy_coef", online},
                                                  {"use_adaptive_entropy", online},
                                                  {"log_completions", online},
                                                  {"skip_zero_advantage_batches", online},
                                                  {"off_policy_mask_threshold", online},
                                                  {"use_vllm", online},
                                                  {"vllm_mode", online}};
  trl.record("chat_template_kwargs", config.trl.chat_template_kwargs);
  if (const Node* variables = trl.take("chat_template_kwargs"); variables != nullptr) {
    trl.judge("chat_template_kwargs", [&] {
      if (variables->kind != Kind::mapping)
        raise_type(trl.prefix() + "chat_template_kwargs", *variables, "a section of name: value lines");
      config.trl.chat_template_kwargs = to_json(*variables);
    });
  }
  apply_idle(trl, idle);
  for (const RecognisedKey& of_server : idle_vllm_keys()) {
    const RecognisedKey one{of_server.key, online};
    apply_idle(trl, std::span(&one, 1));
  }
  static constexpr std::string_view no_generation = "nothing is generated during the training; remove the key";
  static const std::vector<RecognisedKey> lacking = {{"async_prefetch", no_generation},
                                                     {"use_data_producer", no_generation}};
  apply_lacking(trl, lacking);
  apply_lacking(trl, lacking_trl_keys());
  apply_idle(trl, idle_trl_keys());
}

// Every key of a preference method, before the tables of keys without effect are applied.
inline void read_preference(Reader& reader, Reader& trl, RunConfig& config) {
  read_preference_loss(reader, trl, config);
  read_preference_data(reader, trl, config);
  read_preference_trl(trl, config);
}

}  // namespace rlalgo::config::detail
