// Which settings may differ between a checkpoint and the run that goes on from it.
//
// What a resume compares are all effective values of a configuration (RunConfig::settings) and what config/fingerprints.hpp
// adds. A key that is not in the table below changes what is computed: a difference is an error that names it.
#pragma once

#include <span>
#include <string_view>

#include <rlalgo/config/run_config.hpp>
#include <rlalgo/run/resume.hpp>

namespace rlalgo::config {

struct FreeKey {
  std::string_view key;
  std::string_view reason;
};

// Nothing that is computed after a resume depends on these.
[[nodiscard]] inline std::span<const FreeKey> free_keys() {
  static constexpr std::string_view place = "a place; what lies there is compared by content where it is read again";
  static constexpr std::string_view rows = "its rows are compared";
  static constexpr std::string_view when = "when something is written or evaluated, not what is computed";
  static constexpr std::string_view output = "how the model is saved for others; checkpoints are exact";
  static constexpr std::string_view wait = "how long something is waited for";
  static constexpr std::string_view shared = "the same numbers to rounding, on so many ranks";
  static constexpr std::string_view resume = "it says how to resume";
  static constexpr std::string_view evaluation = "it concerns the evaluation alone";
  static constexpr std::string_view slices = "where weights and states lie, not what is computed";
  static constexpr FreeKey keys[] = {
      {"base_model", place},
      {"model_revision", place},
      {"revision_of_model", place},
      {"tokenizer_config", place},
      {"lora_model_dir", place},
      {"output_dir", place},
      {"outside", "a run that goes on has that of its checkpoint; what is made of it is compared by content"},
      {"dataset_prepared_path", place},
      {"datasets", rows},
      {"test_datasets", rows},
      {"gradient_checkpointing", "the same gradients"},
      {"trl.skip_zero_advantage_batches", "the same gradients"},
      {"optimizer", "spellings of one optimizer; what moves the weights, and whether moments have 8 bits, is compared"},
      {"eval_batch_size", evaluation},
      {"trl.num_generations_eval", evaluation},
      {"logging_steps", when},
      {"eval_strategy", when},
      {"evaluation_strategy", when},
      {"eval_steps", when},
      {"evals_per_epoch", when},
      {"eval_on_start", when},
      {"save_strategy", when},
      {"save_steps", when},
      {"saves_per_epoch", when},
      {"save_total_limit", when},
      {"save_only_model", when},
      {"save_first_step", when},
      {"float32", output},
      {"loss_watchdog_threshold", "when the run ends, not what is computed"},
      {"loss_watchdog_patience", "when the run ends, not what is computed"},
      {"use_tensorboard", when},
      {"trl.log_completions", when},
      {"resume_from_checkpoint", resume},
      {"auto_resume_from_checkpoints", resume},
      {"force_resume", resume},
      {"trl.reward_num_workers", "the same rewards, sooner or later"},
      {"trl.reward_max_retries", "the same rewards, sooner or later"},
      {"ddp_timeout", wait},
      {"context_parallel_size", shared},
      {"sequence_parallel_degree", shared},
      {"ring_attn_func", shared},
      {"fsdp_config", slices},
      {"dp_shard_size", slices},
      {"dp_replicate_size", slices},
      {"trl.reward_timeout", wait},
      {"trl.environment_timeout", wait},
      {"nemo_gym_server_timeout", wait},
      {"nemo_gym_verify_timeout", wait},
      {"nemo_gym_run_timeout", wait},
      {"nemo_gym_head_port", place},
      {"nemo_gym_dir", place},
      {"nemo_gym_auto_start", place},
      {"trl.vllm_server_timeout", wait},
      {"trl.request_timeout", wait},
      {"trl.heartbeat_stale_after_s", wait},
      {"trl.vllm_server_host", place},
      {"trl.vllm_server_port", place},
      {"trl.vllm_server_base_url", place},
      {"trl.vllm_group_port", place},
      {"trl.vllm_lora_sync", "the same weights on another way"},
      {"trl.precompute_ref_batch_size", "the same log-probs, so many at once"},
  };
  return keys;
}

// What is resumed for: another end. The schedule stretches with it, so a difference is told.
[[nodiscard]] inline std::span<const FreeKey> extended_keys() {
  static constexpr std::string_view longer = "a run is made longer or shorter; its schedule follows";
  static constexpr FreeKey keys[] = {{"max_steps", longer}, {"num_epochs", longer}};
  return keys;
}

// When and on what is evaluated. Free, unless the learning rate follows evaluations.
[[nodiscard]] inline std::span<const std::string_view> evaluation_keys() {
  static constexpr std::string_view keys[] = {"eval_batch_size", "trl.num_generations_eval", "logging_steps",
                                              "eval_strategy",   "evaluation_strategy",      "eval_steps",
                                              "evals_per_epoch"};
  return keys;
}

[[nodiscard]] inline run::ResumeRules resume_rules(const RunConfig& c) {
  run::ResumeRules out{.free = {}, .extended = {}, .force = c.force_resume};
  for (const FreeKey& row : free_keys()) out.free.emplace(row.key);
  for (const FreeKey& row : extended_keys()) out.extended.emplace(row.key);
  if (c.lr_scheduler == "reduce_lr_on_plateau")
    for (const std::string_view key : evaluation_keys()) out.free.erase(std::string(key));
  return out;
}

}  // namespace rlalgo::config
