// Arguments of TRL, transformers and accelerate that are no keys here, and what is written instead. The file format is axolotl's; who
// comes from a Python program is answered with the key that says the same, or with the reason why nothing does.
//
//   written_here("per_device_train_batch_size", "dpo")   {"micro_batch_size", "it is written micro_batch_size here"}
//   written_here("disable_tqdm", "dpo")                  {"", "remove it: a line of progress is for terminals alone"}
//
// A name that is a key of ours under `trl.` stands in no table: the reader says so by itself. Reasons are checked as those of
// config/recognised.hpp are (tests/config/recognised_test.cpp).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <rlalgo/config/key.hpp>
#include <rlalgo/config/reader.hpp>
#include <rlalgo/config/recognised.hpp>

namespace rlalgo::config {

struct NameElsewhere {
  std::string_view names;    // blanks between them
  std::string_view key;      // ours; a section or list where it ends in one
  std::string_view as = {};  // how the value is written, where it is another one
};

// clang-format off
[[nodiscard]] inline std::span<const NameElsewhere> names_elsewhere() {
  static constexpr NameElsewhere names[] = {
    // Model
    {"model_name_or_path model_name model model_id pretrained_model_name_or_path", "base_model"},
    {"tokenizer_name_or_path tokenizer_name tokenizer processing_class", "tokenizer_config"},
    {"dtype model_dtype", "bf16", "bf16: true is dtype: bfloat16; without the key it is float32"},
    {"bf16_full_eval mixed_precision", "bf16"},
    {"use_cpu no_cuda", "device", "device: cpu"},
    {"activation_checkpointing", "gradient_checkpointing"},
    // Adapter
    {"use_peft peft_config", "adapter", "adapter: lora, with lora_r, lora_alpha and lora_target_modules"},
    {"r lora_rank", "lora_r"},
    {"target_modules", "lora_target_modules"},
    {"modules_to_save", "lora_modules_to_save"},
    {"use_dora", "peft_use_dora"},
    {"use_rslora", "peft_use_rslora"},
    {"use_bnb_nested_quant", "bnb_4bit_use_double_quant"},
    // Data
    {"dataset_name dataset train_dataset", "datasets", "datasets: [{path: …}]"},
    {"dataset_config", "datasets", "datasets: [{path: …, name: …}]"},
    {"dataset_train_split", "datasets", "datasets: [{path: …, split: …}]"},
    {"eval_dataset", "test_datasets", "test_datasets: [{path: …}]"},
    {"dataset_test_split", "test_datasets", "test_datasets: [{path: …, split: …}]"},
    {"data_seed", "seed"},
    {"max_prompt_length", "excess_length_strategy", "excess_length_strategy: drop, or raise; no prompt is cut"},
    // Optimization
    {"per_device_train_batch_size train_batch_size per_gpu_train_batch_size", "micro_batch_size"},
    {"per_device_eval_batch_size", "eval_batch_size"},
    {"num_train_epochs epochs", "num_epochs"},
    {"lr", "learning_rate"},
    {"lr_scheduler_type scheduler", "lr_scheduler"},
    {"optim", "optimizer"},
    {"gradient_clipping max_norm", "max_grad_norm"},
    {"parallelism_config", "context_parallel_size", "context_parallel_size, dp_shard_size and dp_replicate_size"},
    {"num_processes nproc_per_node", "--nproc-per-node", "`rlalgo train CONFIG.yaml --nproc-per-node N`, or torchrun"},
    // Output
    {"logging_dir", "output_dir", "events of TensorBoard are in its runs/"},
    {"logging_strategy", "logging_steps"},
    {"report_to", "use_wandb", "use_wandb: true, use_mlflow, use_comet or use_trackio; TensorBoard is on (use_tensorboard)"},
    {"project", "wandb_project", "wandb_project, mlflow_experiment_name, comet_project_name or trackio_project_name"},
    {"run_name", "wandb_name", "wandb_name, mlflow_run_name or trackio_run_name"},
    {"overwrite_output_dir", "force_resume", "nothing is needed to write into output_dir again"},
    // Preferences
    {"max_length", "sequence_len"},
    {"loss_weights", "dpo_loss_weights"},
    {"use_weighting", "dpo_use_weighting"},
    {"label_smoothing_factor", "dpo_label_smoothing"},
    {"ref_model reference_model", "rl_adapter_ref_model", "the reference is base_model, or the adapter as it starts"},
    // Generation and rewards
    {"num_return_sequences group_size", "trl.num_generations"},
    {"max_new_tokens max_tokens response_length", "trl.max_completion_length"},
    {"reward_func reward_functions reward_model_path reward_model_name_or_path", "trl.reward_funcs"},
    {"kl_coef", "trl.beta"},
    {"cliprange clip_range", "trl.epsilon"},
    {"num_ppo_epochs", "trl.num_iterations"},
  };
  return names;
}

[[nodiscard]] inline std::span<const Reason> reasons_elsewhere() {
  static constexpr Reason reasons[] = {
    {"activation_checkpointing_kwargs", "gradient_checkpointing computes each layer again from its inputs", "use_reentrant"},
    {"average_tokens_across_devices", "sums are divided by the counts of all ranks, always", "", "trainer/trainer.hpp counts"},
    {"batch_eval_metrics eval_do_concat_batches eval_use_gather_object eval_accumulation_steps include_for_metrics label_names "
        "prediction_loss_only", "there are no metrics of one's own: rewards are (trl.reward_funcs)", "compute_metrics"},
    {"bnb_4bit_quant_storage", "codes of 4 bits lie two in a byte, whatever they are stored as: load_in_4bit"},
    {"cache_implementation use_cache", "keys and values are always kept", "", "inference/kv_cache.hpp keys"},
    {"cast_lm_head_to_fp32", "the head computes in float32", "", "tensor/log_prob_head.hpp float32"},
    {"dataloader_in_order dataloader_multiprocessing_context dataloader_persistent_workers dataset_streaming ignore_data_skip",
        "rows are read once, when the run starts, and their order is that of seed", "dataloader"},
    {"ddp_backend ddp_static_graph num_machines machine_rank main_process_ip main_process_port", "ranks are started by --nproc-per-node "
        "or torchrun; see docs/distributed.md", "", "distributed/process_world.hpp torchrun"},
    {"debug log_level log_level_replica log_on_each_node logging_nan_inf_filter", "the log is that of rank 0, and numbers that are not "
        "finite are shown as they are: logging_steps says how often"},
    {"disable_tqdm", "a line of progress is for terminals alone", "tqdm", "run/progress.hpp terminal"},
    {"do_train do_predict", "`rlalgo train` trains"},
    {"do_eval", "evaluations follow val_set_size or test_datasets"},
    {"enable_jit_checkpoint", "Ctrl-C saves a checkpoint and ends the run", "jit_checkpoint"},
    {"eval_delay", "the first evaluation is after eval_steps"},
    {"fp16_full_eval", "nothing computes in float16; bf16 is there"},
    {"full_determinism", "draws and orders follow seed, by counters", "", "core/philox.hpp counter"},
    {"generate_during_eval is_encoder_decoder padding_value label_pad_token_id", "sequences are never padded, and models are decoders", "",
        "model/token_tree.hpp padding"},
    {"pad_token", "write special_tokens.pad_token"},
    {"push_to_hub hub_always_push hub_private_repo hub_token push_to_hub_model_id push_to_hub_token", "nothing is uploaded: output_dir "
        "has all files that the Hub wants", "push_to_hub"},
    {"ignore_bias_buffers", "there are no buffers that ranks would send", "bias_buffers"},
    {"include_num_input_tokens_seen", "tokens are counted in every record", "", "run/progress.hpp tokens"},
    {"length_column_name train_sampling_strategy", "rows come in the order of seed: shuffle_merged_datasets", "length_column"},
    {"liger_kernel_config use_liger_kernel use_liger", "kernels are chosen by the program", "torch_compile dynamo"},
    {"logging_first_step", "the first step is always logged: logging_steps says when the others are"},
    {"lora_task_type task_type bias", "the adapter is that of a language model, without biases", "",
        "model/detail/adapter_files_impl.hpp task_type"},
    {"max_workers dataloader_shuffle", "rows are read once, when the run starts", "dataloader"},
    {"model_init_kwargs ref_model_init_kwargs model_adapter_name ref_adapter_name", "the model is described by its directory: base_model"},
    {"restore_callback_states_from_checkpoint", "there are no callbacks: a resume is exact (resume_from_checkpoint)", "restore_callback"},
    {"save_on_each_node", "rank 0 writes output_dir"},
    {"skip_memory_metrics", "memory is not logged for each step", "memory_metrics"},
    {"trackio_bucket_id trackio_static_space_id", "trackio_space_id names the place of its metrics", "trackio_bucket"},
    {"ds3_gather_for_generation use_transformers_continuous_batching transformers_continuous_batching_config use_transformers_paged",
        "this program generates with an engine of its own", "", "inference/local_engine.hpp engine"},
    {"log_unique_prompts", "completions go to samples.jsonl and report.html", "", "run/samples_log.hpp samples.jsonl"},
    {"padding_free use_logits_to_keep packing", "sequences are never padded", "", "model/token_tree.hpp padding"},
  };
  return reasons;
}
// clang-format on

// What a name from elsewhere is here, in a configuration with that `rl`.
[[nodiscard]] inline std::optional<Answer> written_here(std::string_view name, std::string_view rl) {
  const auto written = [](std::string_view key, std::string_view as) {
    const bool whole = as.starts_with(key);
    return Answer{std::string(key), "it is written " + std::string(whole ? as : key) + " here" +
                                        (whole || as.empty() ? "" : ": " + std::string(as))};
  };
  if (name == "loss_type" && rl == "dpo") return written("dpo_loss_type", "a list");
  for (const NameElsewhere& row : names_elsewhere())
    if (among(name, row.names)) return written(row.key, row.as);
  for (const Reason& row : reasons_elsewhere())
    if (among(name, row.keys)) return Answer{"", "remove it: " + std::string(row.because)};
  return std::nullopt;
}

}  // namespace rlalgo::config
