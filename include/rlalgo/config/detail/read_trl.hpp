// The `trl:` section.
#pragma once

#include <string>
#include <vector>

#include <rlalgo/config/detail/read_asynchronous.hpp>
#include <rlalgo/config/detail/read_generation_kwargs.hpp>
#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/detail/read_vllm.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

inline constexpr const char* one_environment_or_several =
    "module.Class, or a line name: module.Class for each name in the column environment";

// true and false are the words group and none.
inline void read_scale_rewards(Reader& reader, TrlConfig& trl) {
  reader.record("scale_rewards", trl.scale_rewards);
  const Node* node = reader.take("scale_rewards");
  if (node == nullptr) return;
  if (node->kind == Kind::boolean) {
    trl.scale_rewards = node->boolean ? "group" : "none";
    return;
  }
  if (node->kind == Kind::string && lower_equal(node->text, "true"))
    trl.scale_rewards = "group";
  else if (node->kind == Kind::string && lower_equal(node->text, "false"))
    trl.scale_rewards = "none";
  else
    reader.read_choice("scale_rewards", trl.scale_rewards, {"group", "batch", "none"});
}

// One environment, or one for each name in the data's column `environment`.
inline void read_environments(Reader& reader, TrlConfig& trl) {
  const std::string key = "environment_factory";
  const Node* const several = reader.section().find(key);
  if (several == nullptr || several->kind != Kind::mapping) {
    if (several == nullptr || several->scalar()) return void(reader.read(key, trl.environment_factory));
    reader.judge(key, [&] { raise_type(reader.prefix() + key, *several, one_environment_or_several); });
    return void(reader.take(key));
  }
  reader.record(key, trl.environment_factories);
  reader.take(key);
  reader.judge(key, [&] {
    if (several->members.empty()) raise_type(reader.prefix() + key, *several, one_environment_or_several);
    data::Json factories = data::Json::object();
    for (const Member& member : several->members) {
      std::string factory;
      convert(member.value, reader.prefix() + key + "." + member.key, factory);
      factories[member.key] = factory;
    }
    trl.environment_factories = std::move(factories);
  });
}

inline void read_trl(Reader& reader, TrlConfig& trl) {
  reader.read("reward_funcs", trl.reward_funcs);
  reader.read("reward_weights", trl.reward_weights);
  reader.read("reward_num_workers", trl.reward_num_workers);
  reader.record("reward_kwargs", trl.reward_kwargs);
  if (const Node* parameters = reader.take("reward_kwargs"); parameters != nullptr) {
    reader.judge("reward_kwargs", [&] {
      if (parameters->kind != Kind::mapping)
        raise_type(reader.prefix() + "reward_kwargs", *parameters, "reward: {parameter: value} lines");
      trl.reward_kwargs = to_json(*parameters);
    });
  }
  reader.read("reward_timeout", trl.reward_timeout);
  reader.read("reward_max_retries", trl.reward_max_retries);
  reader.read_choice("reward_on_failure", trl.reward_on_failure, {"error", "nan", "zero"});
  read_scale_rewards(reader, trl);
  read_name(reader, "multi_objective_aggregation", trl.multi_objective_aggregation, names_of(aggregations()));

  reader.read("num_generations", trl.num_generations);
  reader.read("num_generations_eval", trl.num_generations_eval);
  reader.read("generation_batch_size", trl.generation_batch_size);
  reader.read("steps_per_generation", trl.steps_per_generation);
  reader.read("num_iterations", trl.num_iterations);
  reader.read("shuffle_dataset", trl.shuffle_dataset);

  read_asynchronous(reader, trl);
  read_vllm(reader, trl);
  reader.read("max_completion_length", trl.max_completion_length);
  read_sampling(reader, trl);
  GenerationKwargsReader(reader, trl).read();
  reader.record("chat_template_kwargs", trl.chat_template_kwargs);
  if (const Node* variables = reader.take("chat_template_kwargs"); variables != nullptr) {
    reader.judge("chat_template_kwargs", [&] {
      if (variables->kind != Kind::mapping)
        raise_type(reader.prefix() + "chat_template_kwargs", *variables, "a section of name: value lines");
      trl.chat_template_kwargs = to_json(*variables);
    });
  }

  read_environments(reader, trl);
  reader.read("tools", trl.tools);
  reader.read("rollout_func", trl.rollout_func);
  if (trl.has_turns()) {
    reader.read("max_tool_calling_iterations", trl.max_tool_calling_iterations);
    reader.read("max_turns", trl.max_turns);
  }
  if (trl.has_turns() || trl.rollout_func) reader.read("environment_timeout", trl.environment_timeout);

  read_name(reader, "advantage_estimator", trl.advantage_estimator, names_of(estimators()));
  read_name(reader, "loss_type", trl.loss_type, names_of(policy_objectives()));
  reader.read("beta", trl.beta);
  reader.read("epsilon", trl.epsilon);
  reader.read("epsilon_high", trl.epsilon_high);
  reader.read("delta", trl.delta);
  read_name(reader, "importance_sampling_level", trl.importance_sampling_level, names_of(ratio_levels()));
  reader.read("mask_truncated_completions", trl.mask_truncated_completions);
  reader.read("use_bias_correction_kl", trl.use_bias_correction_kl);
  reader.read("skip_zero_advantage_batches", trl.skip_zero_advantage_batches);
  reader.read("router_aux_loss_coef", trl.router_aux_loss_coef);
  read_name(reader, "router_replay", trl.router_replay, {"disabled", "R3"});
  reader.read("top_entropy_quantile", trl.top_entropy_quantile);
  reader.read("off_policy_mask_threshold", trl.off_policy_mask_threshold);
  reader.read("sapo_temperature_pos", trl.sapo_temperature_pos);
  reader.read("sapo_temperature_neg", trl.sapo_temperature_neg);
  reader.read("vespo_k_pos", trl.vespo_k_pos);
  reader.read("vespo_lambda_pos", trl.vespo_lambda_pos);
  reader.read("vespo_k_neg", trl.vespo_k_neg);
  reader.read("vespo_lambda_neg", trl.vespo_lambda_neg);
  reader.read("entropy_coef", trl.entropy_coef);
  reader.read("use_adaptive_entropy", trl.use_adaptive_entropy);
  if (trl.use_adaptive_entropy) {
    reader.read("entropy_coef_min", trl.entropy_coef_min);
    reader.read("entropy_coef_max", trl.entropy_coef_max);
    reader.read("entropy_coef_delta", trl.entropy_coef_delta);
    reader.read("entropy_target", trl.entropy_target);
  }
  reader.read("sync_ref_model", trl.sync_ref_model);
  if (trl.sync_ref_model) {
    reader.read("ref_model_mixup_alpha", trl.ref_model_mixup_alpha);
    reader.read("ref_model_sync_steps", trl.ref_model_sync_steps);
  }

  reader.read("normalize_advantages", trl.normalize_advantages);
  reader.record("reward_clip_range", trl.reward_clip_range);
  if (std::vector<double> range; reader.read("reward_clip_range", range)) {
    reader.judge("reward_clip_range", [&] {
      if (range.size() != 2 || !(range[0] < range[1]))
        raise_type(reader.prefix() + "reward_clip_range", *reader.section().find("reward_clip_range"),
                   "[lowest, highest]");
      trl.reward_clip_range = {range[0], range[1]};
    });
  }
  reader.read("log_completions", trl.log_completions);

  apply_lacking(reader, lacking_trl_keys());
  apply_idle(reader, idle_trl_keys());
}

}  // namespace rlalgo::config::detail
