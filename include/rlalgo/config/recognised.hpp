// Keys that axolotl has and that set nothing here: those that ask for what this build lacks, and those without effect. By the reason
// that a message gives, which is checked (tests/config/recognised_test.cpp).
//
// A key is "on" unless it is absent, null or false, or, for sizes and counts of parallelism, at most 1.
//   lacking    on → error config.10 with what works instead; a warning where it changes no number and --allow-unsupported is given
//   idle       on → one warning with the reason
//   removed    present → error config.13, as in axolotl
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

// Keys of one reason, and what the reason rests on: words with which no identifier of another room begins; or a header with a word in it. Otherwise
// it names a key or verb that is there.
struct Reason {
  std::string_view keys;  // blanks between them
  std::string_view because;
  std::string_view nowhere = {};
  std::string_view seen = {};  // "run/metrics_log.hpp metrics.jsonl"
  bool computes = true;
};

// clang-format off
[[nodiscard]] inline std::span<const Reason> lacking_keys() {
  static constexpr std::string_view quantized = "weights are read whole, or as bitsandbytes quantised them; load_in_4bit with adapter: "
      "qlora quantises a base";
  static constexpr std::string_view frozen = "weights in 8 bits or 4 are frozen: set adapter: lora, or adapter: qlora with load_in_4bit";
  static constexpr std::string_view best = "every checkpoint is kept up to save_total_limit; pick one by its metrics";
  static constexpr Reason reasons[] = {
    {"relora", "train one adapter, merge it with `rlalgo merge-lora`, and train the next on the merged model", "relora"},
    {"jagged_restart_steps", "the schedule does not restart: lr_scheduler: cosine_with_restarts does", "jagged"},
    {"lisa_n_layers", "every layer is trained at every step: name fewer in unfrozen_parameters", "lisa_"},
    {"load_in_8bit load_in_4bit", frozen},
    {"gptq model_quantization_config model_quantization_config_kwargs fp8 qat quantization", quantized},
    {"tensor_parallel_size", "no layer is split: context_parallel_size shares long rows among ranks; see docs/distributed.md",
        "tensor_parallel", "", false},
    {"base_model_config", "config.json is read from base_model; put the wanted one there"},
    {"model_config overrides_of_model_config", "edit config.json in the model's directory instead", "model_overrides"},
    {"model_kwargs overrides_of_model_kwargs", "no load options are passed on", "model_kwargs"},
    {"reinit_weights", "start from a checkpoint directory; random weights are not made", "reinit_weights"},
    {"optim_target_modules", "all weights are trained; unfrozen_parameters names some"},
    {"neftune_noise_alpha noisy_embedding_alpha", "no noise is added to embeddings", "neftune"},
    {"early_stopping_patience", "set max_steps, or stop with Ctrl-C: the run saves and can be resumed"},
    {"load_best_model_at_end", best},
    {"metric_for_best_model", best, "", "", false},
    {"dynamic_checkpoint", "Ctrl-C saves a checkpoint and ends the run; resume_from_checkpoint continues it", "", "", false},
    {"auto_find_batch_size", "set micro_batch_size", "", "", false},
    {"curriculum_sampling", "set shuffle_merged_datasets: false and trl.shuffle_dataset: false", "curriculum"},
    {"pretraining_dataset", "use datasets"},
    {"push_dataset_to_hub", "nothing is uploaded", "push_to_hub", "", false},
    {"hub_model_id", "nothing is uploaded: remove it, and run `hf upload NAME DIR` when the run has ended", "push_to_hub", "", false},
    {"reward_model process_reward_model", "reward models are not trained here: trl.reward_funcs takes one that is"},
    {"trainer_cls", "trainers are chosen by rl"},
    {"use_pose", "positions are those of the tokens", "position_skip"},
    {"scaling_softmax", "attention has the scale of config.json", "scaling_softmax"},
    {"fix_untrained_tokens", "embeddings of tokens that were never trained stay as they are in the files", "untrained_tokens"},
    {"use_eaft", "set rl"},
  };
  return reasons;
}

// The same for the trl section.
[[nodiscard]] inline std::span<const Reason> lacking_trl_keys() {
  static constexpr Reason reasons[] = {
    {"reward_processing_classes", "a reward model uses its own tokenizer; remove the key", "", "feature/reward_model.hpp tokenizer"},
    {"log_completions_hub_repo", "nothing is uploaded", "push_to_hub", "", false},
  };
  return reasons;
}

[[nodiscard]] inline std::span<const Reason> idle_keys() {
  static constexpr std::string_view python = "no Python code of a model or tokenizer is run";
  static constexpr std::string_view supervised = "it concerns supervised training";
  static constexpr Reason reasons[] = {
    {"trust_remote_code model_type type_of_model tokenizer_type tokenizer_use_fast tokenizer_legacy tokenizer_use_mistral_common "
        "processor_type processor_kwargs cls_model_config", python, "trust_remote_code"},
    {"torch_dtype", "bf16 says what the model computes in"},
    {"is_falcon_derived_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model", "the family is the one of "
        "config.json", "", "model/detail/hf_config_impl.hpp model_type"},
    {"tokenizer_save_jinja_files", "tokenizer files are saved as they were read", "save_jinja"},
    {"resize_token_embeddings_to_32x shrink_embeddings mean_resizing_embeddings", "the embedding keeps its size",
        "resize_token shrink_embed"},
    {"default_system_message", "put the system text into the dataset", "default_system"},
    {"eot_tokens", "it says which turns supervised training ends; completions end at special_tokens.eos_token and the ends of the model's "
        "generation_config.json"},
    {"chat_template_kwargs", "write trl.chat_template_kwargs"},
    {"tf32", "float32 is multiplied as float32: bf16 is what is faster", "allow_tf32 allowTF32"},
    {"flash_attention sdp_attention flex_attention xformers_attention sage_attention eager_attention attn_implementation "
        "flash_attn_cross_entropy flash_attn_fuse_mlp flash_attn_d512 flash_optimum fused_attn_kernel flex_attn_compile_kwargs "
        "gemma4_hybrid_attn_impl large_head_attention sdpa_varlen", "the program chooses how attention is computed",
        "attn_implementation xformers"},
    {"heads_k_stride", "a ring passes the keys and values of all heads at once; nothing is gathered whole", "heads_k_stride"},
    {"gradient_checkpointing_kwargs", "gradient_checkpointing computes each layer again from its inputs, the one way there is",
        "use_reentrant"},
    {"layer_offloading selective_checkpointing low_cpu_mem_usage max_memory ple_cpu_offload gpu_memory_limit "
        "device_map torch_empty_cache_steps gc_collect_steps gc_steps embeddings_skip_upcast experimental_skip_move_to_device tiled_mlp "
        "tiled_mlp_num_shards tiled_mlp_use_original_mlp", "memory is saved by gradient_checkpointing, bf16 and fsdp_config", "offload"},
    {"fp32_norm_classes fp32_norms", "norms are computed in float32", "", "model/operations.hpp float32"},
    {"scaling_softmax_bias scaling_softmax_factor", "scaling_softmax is not on"},
    {"torch_compile torch_compile_backend torch_compile_mode torch_compile_options use_kernels chunked_cross_entropy "
        "chunked_cross_entropy_num_chunks torchdistx_path lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel",
        "kernels are chosen by the program", "torch_compile dynamo"},
    {"use_onebitllms", "weights train as they are in the files: they are not rounded to 1.58 bits", "onebit"},
    {"experts_implementation", "experts are computed in one way, which the program chooses", "experts_implementation"},
    {"llama4_linearized_experts", "no model of the family Llama 4 is read", "llama4forcausallm llama4_text"},
    {"fp8_enable_fsdp_float8_all_gather fp8_config", "fp8 is not on"},
    {"relora_cpu_offload relora_prune_method relora_prune_ratio", "relora is not on"},
    {"jagged_restart_warmup_steps jagged_restart_anneal_steps", "jagged_restart_steps is not set"},
    {"lisa_step_interval lisa_layers_attribute", "lisa_n_layers is not set"},
    {"freeze_mm_modules image_size image_resize_algorithm", "there are no images", "pixel_values"},
    {"lora_on_cpu qlora_sharded_model_loading merge_method peft_autocast_adapter_dtype", "adapters are float32 and in memory", "",
        "model/lora.hpp float32"},
    {"merge_lora", "`rlalgo merge-lora` merges"},
    {"ddp_bucket_cap_mb ddp_broadcast_buffers ddp_find_unused_parameters ddp accelerator_config deepcompile world_size local_rank use_ray "
        "resources_per_worker", "ranks are started by --nproc-per-node or torchrun; see docs/distributed.md", "accelerator_config",
        "distributed/process_world.hpp torchrun"},
    {"dataloader_num_workers dataloader_pin_memory dataloader_prefetch_factor dataloader_drop_last dataset_num_proc dataset_processes "
        "dataset_keep_in_memory dataset_prepared_path skip_prepare_dataset num_dataset_shards_to_save streaming preprocess_iterable "
        "total_num_tokens total_supervised_tokens", "rows are read once, when the run starts", "dataloader"},
    {"dataset_shard_idx dataset_shard_num", "axolotl reads it for supervised training alone: write datasets[].shards and shards_idx"},
    {"hf_use_auth_token", "nothing is downloaded", "auth_token"},
    {"pad_to_sequence_len pad_to_multiple_of batch_flattening", "sequences are never padded", "", "model/token_tree.hpp padding"},
    {"group_by_length", "rows are never padded, so their lengths need no order", "", "model/token_tree.hpp padding"},
    {"excess_length_strategy", "of rl: ebft: documents end at sequence_len"},
    {"sequence_len", "a prompt has as many tokens as it has; trl.max_completion_length limits completions"},
    {"max_prompt_len", "no prompt is cut: excess_length_strategy says what becomes of long ones"},
    {"remove_unused_columns", "every column goes to the rewards: trl.reward_funcs get them"},
    {"train_on_inputs role_boundaries eval_sample_packing sample_packing_bin_size sample_packing_eff_est sample_packing_group_size "
        "sample_packing_mp_start_method sample_packing_sequentially multipack_real_batches pretrain_multipack_attn "
        "pretrain_multipack_buffer_size pretraining_sample_concatenation streaming_multipack_buffer_size pose_max_context_len "
        "pose_num_chunks pose_split_on_token_ids eaft_alpha eaft_k do_bench_eval do_causal_lm_eval bench_dataset bench_split "
        "eval_causal_lm_metrics eval_max_new_tokens eval_sequence_len eval_table_size generate_samples num_generation_samples "
        "generation_do_sample generation_max_new_tokens generation_prompt_ratio generation_temperature generation_top_k generation_top_p "
        "min_sample_len num_labels center_rewards_coefficient", supervised, "multipack eaft causal_lm_eval"},
    {"orpo_alpha ebft", "it concerns another rl"},
    {"dion_lr dion_momentum dion_rank_fraction dion_rank_multiple_of", "it concerns another optimizer", "dion_"},
    {"vllm", "it says how `rlalgo vllm-serve` serves"},
    {"adam_beta3", "no optimizer here has a third beta", "beta3"},
    {"adam_epsilon2", "it is of came_pytorch; optim_args has eps of adafactor", "came_pytorch"},
    {"greater_is_better", "no checkpoint is singled out: load_best_model_at_end is not here"},
    {"include_tkps include_tokens_per_second", "tokens per second are always logged", "", "run/progress.hpp tokens"},
    {"wandb_watch", "gradients and weights are not logged", "wandb_watch"},
    {"wandb_log_model hf_mlflow_log_artifacts", "models and checkpoints are not uploaded", "log_artifact"},
    {"use_otel_metrics", "metrics go to metrics.jsonl and TensorBoard", "otel", "run/metrics_log.hpp metrics.jsonl"},
    {"hub_revision hub_strategy", "hub_model_id is not set: nothing is uploaded", "push_to_hub"},
    {"profiler_steps profiler_steps_start", "there is no profiler", "profil"},
    {"axolotl_config_path", "it is set by axolotl itself", "axolotl_config_path"},
    {"is_preprocess", "`rlalgo preprocess` prepares, `rlalgo train` trains"},
    {"lr_div_factor", "axolotl does nothing with it: lr_scheduler_kwargs takes div_factor of one_cycle"},
  };
  return reasons;
}

[[nodiscard]] inline std::span<const Reason> idle_trl_keys() {
  static constexpr Reason reasons[] = {
    {"use_liger_loss use_liger_kernel use_transformers_continuous_batching transformers_continuous_batching_config use_transformers_paged "
        "cache_implementation ds3_gather_for_generation", "kernels are chosen by the program", "torch_compile dynamo"},
    {"cast_lm_head_to_fp32", "the head computes in float32", "", "tensor/log_prob_head.hpp float32"},
    {"pad_to_multiple_of", "sequences are never padded", "", "model/token_tree.hpp padding"},
    {"model_init_kwargs", "the model is described by its directory: base_model"},
    {"trust_remote_code", "no Python code of a model is run", "trust_remote_code"},
    {"log_multimodal", "there are no images", "pixel_values"},
    {"num_completions_to_print log_unique_prompts", "completions go to samples.jsonl and report.html", "", "run/samples_log.hpp "
        "samples.jsonl"},
  };
  return reasons;
}

// Families of keys of logging services and plugins, recognised by how they begin.
[[nodiscard]] inline std::span<const Reason> idle_prefixes() {
  static constexpr Reason reasons[] = {
    {"otel_", "metrics go to metrics.jsonl and TensorBoard", "otel", "run/metrics_log.hpp metrics.jsonl"},
    {"nemo_gym_", "nemo_gym_enabled is not true"},
    {"qgalore_", "it concerns another optimizer", "galore"},
    {"gradio_", "there is no web page to chat on", "gradio"},
    {"ray_", "ranks are started by --nproc-per-node or torchrun", "", "distributed/process_world.hpp torchrun"},
  };
  return reasons;
}

[[nodiscard]] inline std::span<const Reason> removed_keys() {
  static constexpr Reason reasons[] = {
    {"dpo_use_logits_to_keep dpo_generate_during_eval s2_attention flash_attn_rms_norm", "it has no successor"},
    {"dpo_norm_loss", "use dpo_loss_type"},
    {"rpo_alpha", "use dpo_loss_type with dpo_loss_weights"},
    {"rope_scaling", "edit config.json in the model's directory instead"},
    {"max_packed_sequence_len", "use sequence_len"},
  };
  return reasons;
}
// clang-format on

// One key after the other.
[[nodiscard]] inline std::vector<RecognisedKey> each_key(std::span<const Reason> reasons) {
  std::vector<RecognisedKey> out;
  for (const Reason& reason : reasons)
    for (std::string_view rest = reason.keys; !rest.empty();) {
      const std::size_t end = rest.find(' ');
      out.push_back({rest.substr(0, end), reason.because, reason.computes});
      rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    }
  return out;
}

}  // namespace rlalgo::config
