// Keys that axolotl has and that set nothing here: those that ask for what this build lacks, and those without effect.
//
// A key is "on" unless it is absent, null or false, or, for sizes and counts of parallelism, at most 1.
//   lacking()    on → error config.10 with what works instead; a warning where it changes no number and --allow-unsupported is given
//   idle()       on → one warning with the reason
//   removed()    present → error config.13, as in axolotl
// Logging services have families of keys, recognised by their prefix.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace rlalgo::config {

struct RecognisedKey {
  std::string_view key;
  std::string_view reason;
  bool computes = true;  // of what is lacking: false where a run without it has the same numbers
};

[[nodiscard]] inline std::span<const RecognisedKey> lacking_keys() {
  static constexpr std::string_view quantized =
      "weights are read whole, or as bitsandbytes quantised them; load_in_4bit with adapter: qlora quantises a base";
  static constexpr std::string_view frozen =
      "weights in 8 bits or 4 are frozen: set adapter: lora, or adapter: qlora with load_in_4bit";
  static constexpr std::string_view parallel =
      "ranks are data-parallel, each with the whole model; see docs/distributed.md";
  static constexpr std::string_view groups = "all weights share one learning_rate here";
  static const std::vector<RecognisedKey> keys = {
      {"relora", "train one adapter, merge it, and train the next on the merged model"},
      {"jagged_restart_steps", "the schedule does not restart: lr_scheduler: cosine_with_restarts does"},
      {"lisa_n_layers", "every layer is trained at every step: name fewer in unfrozen_parameters"},
      {"load_in_8bit", frozen},
      {"load_in_4bit", frozen},
      {"gptq", quantized},
      {"model_quantization_config", quantized},
      {"model_quantization_config_kwargs", quantized},
      {"fp8", quantized},
      {"qat", quantized},
      {"quantization", quantized},
      {"tensor_parallel_size",
       "no layer is split: context_parallel_size shares long rows among ranks; see docs/distributed.md", false},
      {"expert_parallel_size", parallel, false},
      {"base_model_config", "config.json is read from base_model; put the wanted one there"},
      {"model_config", "edit config.json in the model's directory instead"},
      {"overrides_of_model_config", "edit config.json in the model's directory instead"},
      {"model_kwargs", "no load options are passed on"},
      {"overrides_of_model_kwargs", "no load options are passed on"},
      {"reinit_weights", "start from a checkpoint directory; random weights are not made"},
      {"embedding_lr", groups},
      {"embedding_lr_scale", groups},
      {"lr_groups", groups},
      {"loraplus_lr_ratio", groups},
      {"optim_target_modules", "all weights are trained; unfrozen_parameters names some"},
      {"neftune_noise_alpha", "no noise is added to embeddings"},
      {"noisy_embedding_alpha", "no noise is added to embeddings"},
      {"early_stopping_patience", "set max_steps, or stop with Ctrl-C: the run saves and can be resumed"},
      {"load_best_model_at_end", "every checkpoint is kept up to save_total_limit; pick one by its metrics"},
      {"metric_for_best_model", "every checkpoint is kept up to save_total_limit; pick one by its metrics", false},
      {"dynamic_checkpoint", "Ctrl-C saves a checkpoint and ends the run; resume_from_checkpoint continues it", false},
      {"auto_find_batch_size", "set micro_batch_size", false},
      {"curriculum_sampling", "set shuffle_merged_datasets: false and trl.shuffle_dataset: false"},
      {"pretraining_dataset", "use datasets"},
      {"push_dataset_to_hub", "nothing is uploaded", false},
      {"reward_model", "reward models are not trained here"},
      {"process_reward_model", "reward models are not trained here"},
      {"trainer_cls", "trainers are chosen by rl"},
      {"use_pose", "positions are those of the tokens"},
      {"scaling_softmax", "attention has the scale of config.json"},
      {"fix_untrained_tokens", "embeddings of tokens that were never trained stay as they are in the files"},
      {"use_eaft", "set rl"},
  };
  return keys;
}

// The same for the trl section.
[[nodiscard]] inline std::span<const RecognisedKey> lacking_trl_keys() {
  static const std::vector<RecognisedKey> keys = {
      {"router_aux_loss_coef", "mixture-of-experts models are not read"},
      {"reward_processing_classes", "a reward model uses its own tokenizer; remove the key"},
      {"log_completions_hub_repo", "nothing is uploaded", false},
  };
  return keys;
}

[[nodiscard]] inline std::span<const RecognisedKey> idle_keys() {
  static constexpr std::string_view one_attention = "there is one attention path";
  static constexpr std::string_view python = "no Python code of a model or tokenizer is run";
  static constexpr std::string_view memory = "memory is not traded for time here";
  static constexpr std::string_view no_padding = "sequences are never padded";
  static constexpr std::string_view distributed =
      "ranks are started by --nproc-per-node or torchrun; see docs/distributed.md";
  static constexpr std::string_view loader = "rows are read once, in this process";
  static constexpr std::string_view supervised = "it concerns supervised training";
  static constexpr std::string_view kernels = "kernels are chosen by the program";
  static constexpr std::string_view other_recipe = "it concerns another rl";
  static const std::vector<RecognisedKey> keys = {
      {"rl_adapter_ref_model", other_recipe},
      {"trust_remote_code", python},
      {"torch_dtype", "bf16 says what the model computes in"},
      {"model_type", python},
      {"type_of_model", python},
      {"is_falcon_derived_model", "the family is the one of config.json"},
      {"is_llama_derived_model", "the family is the one of config.json"},
      {"is_mistral_derived_model", "the family is the one of config.json"},
      {"is_qwen_derived_model", "the family is the one of config.json"},
      {"tokenizer_type", python},
      {"tokenizer_use_fast", python},
      {"tokenizer_legacy", python},
      {"tokenizer_use_mistral_common", python},
      {"processor_type", python},
      {"processor_kwargs", python},
      {"cls_model_config", python},
      {"tokenizer_save_jinja_files", "tokenizer files are saved as they were read"},
      {"resize_token_embeddings_to_32x", "the embedding keeps its size"},
      {"shrink_embeddings", "the embedding keeps its size"},
      {"mean_resizing_embeddings", "the embedding keeps its size"},
      {"default_system_message", "put the system text into the dataset"},
      {"eot_tokens",
       "it says which turns supervised training ends; completions end at special_tokens.eos_token and "
       "the ends of the model's generation_config.json"},
      {"chat_template_kwargs", "write trl.chat_template_kwargs"},
      {"tf32", "the device has no TF32"},
      {"flash_attention", one_attention},
      {"sdp_attention", one_attention},
      {"flex_attention", one_attention},
      {"xformers_attention", one_attention},
      {"sage_attention", one_attention},
      {"eager_attention", one_attention},
      {"attn_implementation", one_attention},
      {"flash_attn_cross_entropy", one_attention},
      {"flash_attn_fuse_mlp", one_attention},
      {"flash_attn_d512", one_attention},
      {"flash_optimum", one_attention},
      {"fused_attn_kernel", one_attention},
      {"flex_attn_compile_kwargs", one_attention},
      {"gemma4_hybrid_attn_impl", one_attention},
      {"large_head_attention", one_attention},
      {"sdpa_varlen", one_attention},
      {"heads_k_stride", "a ring passes the keys and values of all heads at once; nothing is gathered whole"},
      {"gradient_checkpointing_kwargs", memory},
      {"activation_offloading", memory},
      {"layer_offloading", memory},
      {"selective_checkpointing", memory},
      {"low_cpu_mem_usage", memory},
      {"max_memory", memory},
      {"ple_cpu_offload", memory},
      {"gpu_memory_limit", memory},
      {"device_map", memory},
      {"torch_empty_cache_steps", memory},
      {"gc_collect_steps", memory},
      {"gc_steps", memory},
      {"embeddings_skip_upcast", memory},
      {"experimental_skip_move_to_device", memory},
      {"tiled_mlp", memory},
      {"tiled_mlp_num_shards", memory},
      {"tiled_mlp_use_original_mlp", memory},
      {"fp32_norm_classes", "norms are computed in float32"},
      {"fp32_norms", "norms are computed in float32"},
      {"scaling_softmax_bias", "scaling_softmax is not on"},
      {"scaling_softmax_factor", "scaling_softmax is not on"},
      {"torch_compile", kernels},
      {"torch_compile_backend", kernels},
      {"torch_compile_mode", kernels},
      {"torch_compile_options", kernels},
      {"use_kernels", kernels},
      {"use_onebitllms", "weights train as they are in the files: they are not rounded to 1.58 bits"},
      {"chunked_cross_entropy", kernels},
      {"chunked_cross_entropy_num_chunks", kernels},
      {"experts_implementation", "mixture-of-experts models are not read"},
      {"llama4_linearized_experts", "mixture-of-experts models are not read"},
      {"torchdistx_path", kernels},
      {"lora_mlp_kernel", kernels},
      {"lora_qkv_kernel", kernels},
      {"lora_o_kernel", kernels},
      {"lora_embedding_kernel", kernels},
      {"fp8_enable_fsdp_float8_all_gather", "fp8 is not on"},
      {"fp8_config", "fp8 is not on"},
      {"relora_cpu_offload", "relora is not on"},
      {"jagged_restart_warmup_steps", "jagged_restart_steps is not set"},
      {"jagged_restart_anneal_steps", "jagged_restart_steps is not set"},
      {"lisa_step_interval", "lisa_n_layers is not set"},
      {"lisa_layers_attribute", "lisa_n_layers is not set"},
      {"relora_prune_method", "relora is not on"},
      {"relora_prune_ratio", "relora is not on"},
      {"freeze_mm_modules", "there are no images"},
      {"image_size", "there are no images"},
      {"image_resize_algorithm", "there are no images"},
      {"lora_on_cpu", "adapters are float32 and in memory"},
      {"qlora_sharded_model_loading", "adapters are float32 and in memory"},
      {"merge_lora", "adapters are float32 and in memory"},
      {"merge_method", "adapters are float32 and in memory"},
      {"peft_autocast_adapter_dtype", "adapters are float32 and in memory"},
      {"loraplus_lr_embedding", "loraplus_lr_ratio is not set"},
      {"ddp_bucket_cap_mb", distributed},
      {"ddp_broadcast_buffers", distributed},
      {"ddp_find_unused_parameters", distributed},
      {"ddp", distributed},
      {"accelerator_config", distributed},
      {"deepcompile", distributed},
      {"world_size", distributed},
      {"local_rank", distributed},
      {"use_ray", distributed},
      {"resources_per_worker", distributed},
      {"dataloader_num_workers", loader},
      {"dataloader_pin_memory", loader},
      {"dataloader_prefetch_factor", loader},
      {"dataloader_drop_last", loader},
      {"dataset_num_proc", loader},
      {"dataset_processes", loader},
      {"dataset_shard_idx", "axolotl reads it for supervised training alone: write a split such as train[:25%]"},
      {"dataset_shard_num", "axolotl reads it for supervised training alone: write a split such as train[:25%]"},
      {"dataset_keep_in_memory", loader},
      {"dataset_prepared_path", loader},
      {"skip_prepare_dataset", loader},
      {"num_dataset_shards_to_save", loader},
      {"streaming", loader},
      {"preprocess_iterable", loader},
      {"hf_use_auth_token", "nothing is downloaded"},
      {"total_num_tokens", loader},
      {"total_supervised_tokens", loader},
      {"pad_to_sequence_len", no_padding},
      {"group_by_length", "rows come in a random order, and are never padded"},
      {"pad_to_multiple_of", no_padding},
      {"batch_flattening", no_padding},
      {"excess_length_strategy", "a document is read to its end"},
      {"sequence_len", "a prompt has as many tokens as it has; trl.max_completion_length limits completions"},
      {"max_prompt_len", "no prompt is cut: rows of preferences that are longer than sequence_len are handled whole"},
      {"min_sample_len", "prompts are never cut or dropped"},
      {"remove_unused_columns", "every column goes to the rewards"},
      {"train_on_inputs", supervised},
      {"role_boundaries", supervised},
      {"eval_sample_packing", supervised},
      {"sample_packing_bin_size", supervised},
      {"sample_packing_eff_est", supervised},
      {"sample_packing_group_size", supervised},
      {"sample_packing_mp_start_method", supervised},
      {"sample_packing_sequentially", supervised},
      {"multipack_real_batches", supervised},
      {"pretrain_multipack_attn", supervised},
      {"pretrain_multipack_buffer_size", supervised},
      {"pretraining_sample_concatenation", supervised},
      {"streaming_multipack_buffer_size", supervised},
      {"pose_max_context_len", supervised},
      {"pose_num_chunks", supervised},
      {"pose_split_on_token_ids", supervised},
      {"eaft_alpha", supervised},
      {"eaft_k", supervised},
      {"do_bench_eval", supervised},
      {"do_causal_lm_eval", supervised},
      {"bench_dataset", supervised},
      {"bench_split", supervised},
      {"eval_causal_lm_metrics", supervised},
      {"eval_max_new_tokens", supervised},
      {"eval_sequence_len", supervised},
      {"eval_table_size", supervised},
      {"generate_samples", supervised},
      {"num_generation_samples", supervised},
      {"generation_do_sample", supervised},
      {"generation_max_new_tokens", supervised},
      {"generation_prompt_ratio", supervised},
      {"generation_temperature", supervised},
      {"generation_top_k", supervised},
      {"generation_top_p", supervised},
      {"num_labels", supervised},
      {"center_rewards_coefficient", supervised},
      {"dpo_label_smoothing", other_recipe},
      {"dpo_use_weighting", other_recipe},
      {"dpo_use_liger_kernel", other_recipe},
      {"dpo_padding_free", other_recipe},
      {"precompute_ref_log_probs", other_recipe},
      {"orpo_alpha", other_recipe},
      {"simpo_gamma", other_recipe},
      {"cpo_alpha", other_recipe},
      {"kto_desirable_weight", other_recipe},
      {"kto_undesirable_weight", other_recipe},
      {"ebft", other_recipe},
      {"vllm", "it says how `rlalgo vllm-serve` serves"},
      {"adam_beta3", "AdamW has two betas"},
      {"adam_epsilon2", "AdamW has one epsilon"},
      {"greater_is_better", "no checkpoint is singled out"},
      {"loss_watchdog_patience", "there is no loss_watchdog_threshold"},
      {"include_tkps", "tokens per second are always logged"},
      {"include_tokens_per_second", "tokens per second are always logged"},
      {"use_wandb", "metrics go to metrics.jsonl and TensorBoard"},
      {"use_mlflow", "metrics go to metrics.jsonl and TensorBoard"},
      {"use_comet", "metrics go to metrics.jsonl and TensorBoard"},
      {"use_trackio", "metrics go to metrics.jsonl and TensorBoard"},
      {"use_otel_metrics", "metrics go to metrics.jsonl and TensorBoard"},
      {"hub_model_id", "nothing is uploaded"},
      {"hub_revision", "nothing is uploaded"},
      {"hub_strategy", "nothing is uploaded"},
      {"profiler_steps", "there is no profiler"},
      {"profiler_steps_start", "there is no profiler"},
      {"axolotl_config_path", "it is set by axolotl itself"},
      {"is_preprocess", "`rlalgo preprocess` prepares, `rlalgo train` trains"},
      {"dion_lr", other_recipe},
      {"dion_momentum", other_recipe},
      {"dion_rank_fraction", other_recipe},
      {"dion_rank_multiple_of", other_recipe},
      {"lr_div_factor", "axolotl does nothing with it; lr_scheduler_kwargs.div_factor is of one_cycle"},
  };
  return keys;
}

[[nodiscard]] inline std::span<const RecognisedKey> idle_trl_keys() {
  static constexpr std::string_view asynchronous = "it concerns generation beside training (trl.async_prefetch)";
  static constexpr std::string_view kernels = "kernels are chosen by the program";
  static constexpr std::string_view single_turns =
      "completions are single turns: there is no trl.environment_factory and no trl.tools";
  static constexpr std::string_view other_recipe = "it concerns another rl or another loss_type";
  static const std::vector<RecognisedKey> keys = {
      {"prefetch_depth", asynchronous},
      {"max_staleness", asynchronous},
      {"heartbeat_stale_after_s", asynchronous},
      {"vllm_sync_interval", asynchronous},
      {"async_schedule", asynchronous},
      {"async_schedule_file", asynchronous},
      {"streaming_partial_batch", asynchronous},
      {"streaming_min_groups", asynchronous},
      {"replay_buffer_size", asynchronous},
      {"replay_recompute_logps", asynchronous},
      {"replay_max_age", asynchronous},
      {"reroll_start_fraction", asynchronous},
      {"reroll_max_groups", asynchronous},
      {"use_liger_loss", kernels},
      {"use_liger_kernel", kernels},
      {"cast_lm_head_to_fp32", "the head computes in float32"},
      {"use_transformers_continuous_batching", kernels},
      {"transformers_continuous_batching_config", kernels},
      {"use_transformers_paged", kernels},
      {"cache_implementation", kernels},
      {"ds3_gather_for_generation", kernels},
      {"disable_dropout", "there is no dropout"},
      {"pad_to_multiple_of", "sequences are never padded"},
      {"model_init_kwargs", "the model is described by its directory"},
      {"trust_remote_code", "no Python code of a model is run"},
      {"log_multimodal", "there are no images"},
      {"max_tool_calling_iterations", single_turns},
      {"max_turns", single_turns},
      {"environment_timeout", single_turns},
      {"num_completions_to_print", "completions go to samples.jsonl and report.html"},
      {"log_unique_prompts", "completions go to samples.jsonl and report.html"},
      {"ref_model_mixup_alpha", "trl.sync_ref_model is not on"},
      {"ref_model_sync_steps", "trl.sync_ref_model is not on"},
      {"entropy_target", "trl.use_adaptive_entropy is not on"},
      {"entropy_coef_delta", "trl.use_adaptive_entropy is not on"},
      {"entropy_coef_min", "trl.use_adaptive_entropy is not on"},
      {"entropy_coef_max", "trl.use_adaptive_entropy is not on"},
      {"f_divergence_type", other_recipe},
      {"f_alpha_divergence_coef", other_recipe},
      {"ld_alpha", other_recipe},
      {"discopop_tau", other_recipe},
      {"label_smoothing", other_recipe},
      {"truncation_mode", other_recipe},
      {"max_length", other_recipe},
      {"padding_free", other_recipe},
      {"precompute_ref_batch_size", other_recipe},
  };
  return keys;
}

// Of a server that makes completions, while none does.
[[nodiscard]] inline std::span<const RecognisedKey> idle_vllm_keys() {
  static constexpr std::string_view local =
      "it concerns a generation server, and completions are generated in this process";
  static const std::vector<RecognisedKey> keys = {
      {"vllm_server_host", local},
      {"vllm_server_port", local},
      {"vllm_server_timeout", local},
      {"request_timeout", local},
      {"vllm_server_base_url", local},
      {"vllm_group_port", local},
      {"vllm_guided_decoding_regex", local},
      {"vllm_structured_outputs_regex", local},
      {"vllm_enable_sleep_mode", local},
      {"vllm_model_impl", local},
      {"vllm_gpu_memory_utilization", local},
      {"vllm_max_model_length", local},
      {"vllm_tensor_parallel_size", local},
      {"vllm_importance_sampling_correction", local},
      {"vllm_importance_sampling_mode", local},
      {"vllm_importance_sampling_cap", local},
      {"vllm_importance_sampling_clip_min", local},
      {"vllm_importance_sampling_clip_max", local},
      {"vllm_lora_sync", local},
  };
  return keys;
}

// Of another server, where agents ask this process.
[[nodiscard]] inline std::span<const RecognisedKey> idle_serving_keys() {
  static constexpr std::string_view elsewhere = "it concerns another server, and the agents ask this process";
  static constexpr std::string_view requests = "the agents' requests say what they want";
  static constexpr std::string_view sized = "the server in this process takes what the model needs";
  static const std::vector<RecognisedKey> keys = {
      {"vllm_server_timeout", elsewhere},
      {"request_timeout", elsewhere},
      {"vllm_server_base_url", elsewhere},
      {"vllm_group_port", elsewhere},
      {"vllm_lora_sync", elsewhere},
      {"vllm_guided_decoding_regex", requests},
      {"vllm_structured_outputs_regex", requests},
      {"vllm_enable_sleep_mode", sized},
      {"vllm_model_impl", sized},
      {"vllm_gpu_memory_utilization", sized},
      {"vllm_max_model_length", sized},
      {"vllm_tensor_parallel_size", sized},
  };
  return keys;
}

// With a generation server: what is the server's own business.
[[nodiscard]] inline std::span<const RecognisedKey> idle_server_keys() {
  static constexpr std::string_view colocated = "it concerns vllm_mode: colocate";
  static const std::vector<RecognisedKey> keys = {
      {"vllm_enable_sleep_mode", colocated},
      {"vllm_model_impl", colocated},
      {"vllm_gpu_memory_utilization", colocated},
      {"vllm_max_model_length", colocated},
      {"vllm_tensor_parallel_size", colocated},
      {"generation_quantization", "it concerns completions of this process, and a server makes them"},
  };
  return keys;
}

// Families of keys of logging services and plugins, recognised by how they begin.
[[nodiscard]] inline std::span<const RecognisedKey> idle_prefixes() {
  static constexpr std::string_view logged = "metrics go to metrics.jsonl and TensorBoard";
  static const std::vector<RecognisedKey> prefixes = {
      {"wandb_", logged},
      {"mlflow_", logged},
      {"hf_mlflow_", logged},
      {"comet_", logged},
      {"trackio_", logged},
      {"otel_", logged},
      {"nemo_gym_", "nemo_gym_enabled is not true"},
      {"qgalore_", "it concerns another optimizer"},
      {"gradio_", "there is no web page"},
      {"ray_", "there is one process"},
  };
  return prefixes;
}

[[nodiscard]] inline std::span<const RecognisedKey> removed_keys() {
  static const std::vector<RecognisedKey> keys = {
      {"dpo_use_logits_to_keep", "it has no successor"},
      {"dpo_generate_during_eval", "it has no successor"},
      {"dpo_norm_loss", "use dpo_loss_type"},
      {"rpo_alpha", "use dpo_loss_type with dpo_loss_weights"},
      {"rope_scaling", "edit config.json in the model's directory instead"},
      {"max_packed_sequence_len", "use sequence_len"},
      {"s2_attention", "it has no successor"},
      {"flash_attn_rms_norm", "it has no successor"},
  };
  return keys;
}

}  // namespace rlalgo::config
