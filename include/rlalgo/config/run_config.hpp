// Everything a run is told, as plain values: axolotl's keys, its defaults, and the `trl:` section.
//
// A field has the name of its key. A field without a key of its own is marked "derived". Where a key's default depends
// on the recipe or on other keys, the field is optional and config/plan.hpp or the recipe resolves it. `given` tells
// which keys were set and where. Defaults departing from axolotl's are marked (≠).
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/ebft_config.hpp>
#include <rlalgo/config/nemo_gym_config.hpp>
#include <rlalgo/config/node.hpp>
#include <rlalgo/config/preference_config.hpp>
#include <rlalgo/config/sharding_config.hpp>
#include <rlalgo/core/outside.hpp>
#include <rlalgo/data/chat_template_format.hpp>
#include <rlalgo/data/load.hpp>
#include <rlalgo/data/shard.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/quantisation.hpp>
#include <rlalgo/optim/schedule.hpp>
#include <rlalgo/text/special_tokens.hpp>

namespace rlalgo::distributed {
class World;
}

namespace rlalgo::config {

// One entry of `datasets` or `test_datasets`.
struct DatasetConfig {
  data::DatasetSource source;  // path, data_files, split, ds_type, name, revision, field
  data::Json type = nullptr;   // null, the name of a transform, or a mapping
  data::MessageFields fields;  // field_messages, field_chosen, field_rejected, message_property_mappings, roles …
  data::Shard shard = {};      // shards, shards_idx; preprocess_shards makes an entry of each shard
  std::optional<std::string> chat_template, chat_template_jinja;  // of these rows; unset: the run's
  std::size_t index = 0;                                          // in its list, as the file has it
  Place place = {};

  [[nodiscard]] bool has_template() const { return chat_template || chat_template_jinja; }
};

// optim_args of `optimizer: muon`, and of adafactor (optim/muon.hpp, optim/adafactor.hpp).
struct MuonArguments {
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t ns_steps = 5;
};
struct AdafactorArguments {
  double epsilon_square = 1e-30, epsilon_scale = 1e-3;
  double clip_threshold = 1.0;
  double decay_rate = -0.8;
  std::optional<double> beta1;
  bool scale_parameter = false;
};

// How a base in 4 or 8 bits is made: bnb_4bit_*, and bnb_config_kwargs (config/detail/read_quantisation.hpp).
struct QuantisedBase {
  std::string bnb_4bit_compute_dtype = {};  // float32, bfloat16; unset: the model's
  std::string bnb_4bit_quant_type = "nf4";
  bool bnb_4bit_use_double_quant = true;
  std::int64_t blocksize = 64;
  bool quantize_moe_experts = false;
  std::vector<std::string> llm_int8_skip_modules = {};

  [[nodiscard]] model::Quantisation quantisation(bool eight) const {
    using model::ProductsIn;
    return {.code = eight                          ? model::WeightCode::int8
                    : bnb_4bit_quant_type == "fp4" ? model::WeightCode::fp4
                                                   : model::WeightCode::nf4,
            .block = blocksize,
            .nested = bnb_4bit_use_double_quant,
            .products = eight || bnb_4bit_compute_dtype.empty() ? ProductsIn::model
                        : bnb_4bit_compute_dtype == "bfloat16"  ? ProductsIn::bfloat16
                                                                : ProductsIn::float32,
            .experts = quantize_moe_experts,
            .skip = llm_int8_skip_modules};
  }
};

// The `trl:` section; unset numbers have TRL's defaults.
struct TrlConfig {
  // Rewards
  std::vector<std::string> reward_funcs;    // module.function, or a built-in
  std::vector<double> reward_weights;       // empty = all 1
  std::int64_t reward_num_workers = 1;      // Python processes that share a batch
  data::Json reward_kwargs = nullptr;       // reward → its parameters (rlalgo's own key, like the three below)
  double reward_timeout = 60.0;             // seconds one call of a Python reward may take
  std::int64_t reward_max_retries = 1;      // further attempts after a Python process died or hung
  std::string reward_on_failure = "error";  // error, nan, zero
  std::string scale_rewards = "group";      // group, batch, none; true = group, false = none
  std::string multi_objective_aggregation = "sum_then_normalize";

  // Geometry
  std::int64_t num_generations = 8;                  // G
  std::optional<std::int64_t> num_generations_eval;  // num_generations unless set
  std::optional<std::int64_t> generation_batch_size;
  std::optional<std::int64_t> steps_per_generation;
  std::int64_t num_iterations = 1;  // μ
  bool shuffle_dataset = true;

  // Sampling
  std::int64_t max_completion_length = 512;  // tokens (≠ axolotl passes null on; TRL 512)
  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;                     // 0 = off
  double min_p = 0.0;                         // 0 = off
  double repetition_penalty = 1.0;            // trl.generation_kwargs overrides these five, and is applied here
  data::Json chat_template_kwargs = nullptr;  // variables of the chat template

  // Several turns
  std::optional<std::string> environment_factory;  // module.Class, or the address of an OpenEnv server
  data::Json environment_factories = nullptr;      // several: name in the column `environment` → one of these
  std::vector<std::string> tools;                  // calculator, module.function
  std::optional<std::int64_t> max_tool_calling_iterations;  // rounds of calls in one completion; unset = no limit
  std::int64_t max_turns = 0;                               // messages of the model; 0 = no limit (rlalgo's own key)
  double environment_timeout = 60.0;                        // seconds for one turn of all episodes (rlalgo's own key)
  std::optional<std::string> rollout_func;                  // module.function that makes the completions
  [[nodiscard]] bool has_environment() const { return environment_factory || environment_factories.is_object(); }
  // Whether the environment may say what there is to do, without rows: of several, rows choose.
  [[nodiscard]] bool prompts_itself() const { return environment_factory.has_value(); }
  [[nodiscard]] bool has_turns() const { return has_environment() || !tools.empty(); }
  // Whose turns follow each other: each environment is asked with a deadline of its own.
  [[nodiscard]] double turn_timeout() const {
    return environment_timeout * static_cast<double>(std::max<std::size_t>(1, environment_factories.size()));
  }

  // Completions made by a server (TRL's vllm-serve protocol)
  bool use_vllm = false;
  std::string vllm_mode = "server";  // server; colocate = this process's own engine
  std::string vllm_server_host = "0.0.0.0";
  std::int64_t vllm_server_port = 8000;
  std::optional<std::string> vllm_server_base_url;  // wins over host and port
  std::int64_t vllm_group_port = 51216;             // of the store, where weights are broadcast
  double vllm_server_timeout = 240.0;               // seconds to wait for the server to be up
  double request_timeout = 600.0;                   // seconds for one call to it, further attempts included
  bool vllm_lora_sync = true;                       // an adapter travels as files; false: merged, over HTTP
  std::optional<std::string> vllm_structured_outputs_regex;
  // Of trl.generation_kwargs: what ends completions, and what else is passed on to the server.
  std::vector<std::string> stop_strings;
  std::vector<data::TokenId> stop_token_ids;   // beside the model's own
  bool ignore_eos = false;                     // without those
  std::optional<std::int64_t> max_new_tokens;  // of a completion, or of one message where there are turns
  std::int64_t min_new_tokens = 0;
  data::Json generation_kwargs = nullptr;
  bool vllm_importance_sampling_correction = true;
  std::string vllm_importance_sampling_mode = "sequence_mask";  // token|sequence _ truncate|mask
  std::optional<double> vllm_importance_sampling_clip_min;
  std::optional<double> vllm_importance_sampling_clip_max = 3.0;
  [[nodiscard]] bool generates_elsewhere() const { return use_vllm && vllm_mode == "server"; }
  std::string generation_quantization = "none";  // of the engine of this process: none, int8 (rlalgo's own key)
  [[nodiscard]] bool quantizes() const { return generation_quantization != "none"; }
  bool agents = false;  // of a Gym make them (nemo_gym_multi_turn), who ask a server
  // Whether that server is this process.
  [[nodiscard]] bool serves() const { return agents && !generates_elsewhere(); }

  // Generation beside training
  bool use_data_producer = false;                  // alone: generation and training take turns, as without it
  bool async_prefetch = false;                     // generations are made ahead, on a thread of their own
  std::int64_t prefetch_depth = 1;                 // generations ahead; 0 = none
  std::int64_t vllm_sync_interval = 1;             // optimizer steps between two hand-overs of the weights, at least
  std::optional<std::int64_t> max_staleness;       // updates that a completion may be behind; unset = no limit
  bool streaming_partial_batch = false;            // a generation is trained on while it is made
  std::int64_t streaming_min_groups = 1;           // that are finished together; less than 1 is 1
  std::string async_schedule = "live";             // live, record, recorded (rlalgo's own key, as the next)
  std::optional<std::string> async_schedule_file;  // of the last two; unset: async_schedule.jsonl in output_dir
  std::int64_t heartbeat_stale_after_s = 300;  // a producer that is silent for longer, its deadlines aside, has failed
  std::int64_t replay_buffer_size = 0;         // groups; 0 = off
  std::optional<std::int64_t> replay_max_age;  // updates; unset = no limit (rlalgo's own key)
  // Old log-probs of replayed rows: the policy's as it is, or their generator's. Unset: the first where a correction stands for
  // the difference between the two, else the second.
  std::optional<bool> replay_recompute_logps;
  double reroll_start_fraction = 1.0;  // of the run's steps; 1 = off
  std::int64_t reroll_max_groups = 1;
  [[nodiscard]] bool generates_beside() const {
    return async_prefetch && (prefetch_depth > 0 || streaming_partial_batch);
  }
  // How many groups of a generation are finished together; 0: it is not trained on while it is made.
  [[nodiscard]] std::int64_t groups_in_a_piece() const {
    return streaming_partial_batch ? std::max<std::int64_t>(1, streaming_min_groups) : 0;
  }
  // Whether the ratio of a row may have to be corrected for the generator that drew it.
  [[nodiscard]] bool may_correct() const {
    return generates_elsewhere() || serves() || generates_beside() || quantizes() ||
           (replay_buffer_size > 0 && replay_recompute_logps.value_or(false));
  }

  // Loss
  std::string advantage_estimator = "group_relative";  // see methods.hpp
  std::string loss_type = "dapo";                      // see methods.hpp
  std::optional<double> beta;                          // see RunConfig::beta
  double epsilon = 0.2;
  std::optional<double> epsilon_high;               // epsilon unless set
  std::optional<double> delta;                      // two-sided clip
  std::string importance_sampling_level = "token";  // token, sequence, sequence_token
  bool mask_truncated_completions = false;
  bool normalize_advantages = false;                           // rl: rloo
  std::optional<std::pair<double, double>> reward_clip_range;  // rl: rloo
  double top_entropy_quantile = 1.0;                           // 1 = off
  std::optional<double> off_policy_mask_threshold;
  double sapo_temperature_pos = 1.0;
  double sapo_temperature_neg = 1.05;
  double vespo_k_pos = 2.0;
  double vespo_lambda_pos = 3.0;
  double vespo_k_neg = 3.0;
  double vespo_lambda_neg = 2.0;
  double entropy_coef = 0.0;
  bool use_adaptive_entropy = false;
  double entropy_coef_min = 0.0;  // of use_adaptive_entropy, and the next three
  double entropy_coef_max = 1.0;
  double entropy_coef_delta = 0.005;
  double entropy_target = 0.2;  // nats
  [[nodiscard]] bool pays_entropy() const { return entropy_coef != 0.0 || use_adaptive_entropy; }
  bool sync_ref_model = false;
  double ref_model_mixup_alpha = 0.9;
  std::int64_t ref_model_sync_steps = 64;
  bool use_bias_correction_kl = false;
  bool skip_zero_advantage_batches = false;
  std::optional<double> router_aux_loss_coef;  // of models with experts; unset: config.json's
  std::string router_replay = "disabled";      // …: disabled, or R3: the experts of generation are passed again

  // Logging
  bool log_completions = false;
};

struct RunConfig {
  // Model and tokenizer
  std::string base_model;                       // required: directory, or id in the cache
  std::optional<std::string> model_revision;    // of a cached id
  std::optional<std::string> tokenizer_config;  // base_model unless set
  std::optional<std::string> chat_template;
  std::optional<std::string> chat_template_jinja;
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;  // of special_tokens
  std::vector<std::string> additional_special_tokens;                     // of special_tokens
  std::vector<std::string> tokens;                                        // found in texts like added tokens
  data::Json added_tokens_overrides = nullptr;                            // id of an added token → its new text

  // Adapter: lora_* and peft_* keys, which lora_model_dir overrides
  std::optional<model::LoraConfig> lora;            // set by adapter: lora
  std::optional<std::string> lora_model_dir;        // an adapter to continue
  bool load_in_8bit = false, load_in_4bit = false;  // the base below it
  QuantisedBase bnb;
  // Of the base's weights, where the files have them whole.
  [[nodiscard]] std::optional<model::Quantisation> quantisation() const {
    if (!load_in_4bit && !load_in_8bit) return std::nullopt;
    return bnb.quantisation(load_in_8bit);
  }
  std::vector<std::string> unfrozen_parameters;  // patterns of the only weights to train; empty = all

  bool gradient_checkpointing = false;
  std::string device = "cpu";  // as chosen: cpu, cuda:N (config/device.hpp)
  bool bfloat16 = false;       // bf16 or bfloat16: weights and activations; the optimizer updates float32 masters
  bool float32 = false;        // a whole model is saved in float32, whatever the base's files are in

  // Recipe
  std::string rl;  // required: a name of recipes() in config/methods.hpp
  std::optional<double> rl_beta;
  double beta = 0.0;  // derived: trl.beta, else rl_beta, else the recipe's default

  // Data
  std::vector<DatasetConfig> datasets;  // required
  std::vector<DatasetConfig> test_datasets;
  double val_set_size = 0.0;
  bool shuffle_merged_datasets = true;
  bool shuffle_before_merging_datasets = false;
  bool dataset_exact_deduplication = false;
  std::string excess_prompts = "raise";  // excess_length_strategy of prompts that leave no room: raise, drop
  std::uint64_t seed = 42;               // (≠ axolotl shuffles unseeded when the key is absent)

  // Optimization
  std::int64_t micro_batch_size = 1;
  std::int64_t gradient_accumulation_steps = 1;
  std::optional<std::int64_t> eval_batch_size;  // micro_batch_size unless set
  double num_epochs = 1.0;
  std::optional<std::int64_t> max_steps;
  std::string optimizer = "adamw_torch_fused";  // see supported.hpp
  MuonArguments muon;
  AdafactorArguments adafactor;
  double learning_rate = 0.0;  // required
  std::string lr_scheduler = "cosine";
  std::optional<double> cosine_min_lr_ratio;
  std::optional<double> cosine_constant_lr_ratio;
  bool lr_quadratic_warmup = false;
  optim::ScheduleConfig schedule;                    // what lr_scheduler_kwargs says; the rest is of schedule_of()
  std::optional<std::string> metric_for_best_model;  // of reduce_lr_on_plateau: with or without eval_; loss unless set
  std::optional<std::int64_t> warmup_steps;
  std::optional<double> warmup_ratio;
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  // 0 = no clipping

  // Logging, evaluation, saving
  std::string output_dir = "./model-out";
  std::optional<std::int64_t> logging_steps;
  std::optional<std::string> eval_strategy;  // no, steps, epoch
  std::optional<double> eval_steps;          // below 1: fraction of all steps
  std::optional<std::int64_t> evals_per_epoch;
  std::optional<std::string> save_strategy;  // no, steps, epoch
  std::optional<double> save_steps;
  std::optional<std::int64_t> saves_per_epoch;
  std::optional<double> loss_watchdog_threshold;  // a loss above it for so many steps ends the run
  std::int64_t loss_watchdog_patience = 3;        // 0 is 3, as in axolotl
  std::int64_t save_total_limit = 4;
  bool save_only_model = false;
  bool save_first_step = false;
  bool use_tensorboard = true;  // (≠ axolotl off)
  std::optional<std::string> resume_from_checkpoint;
  bool auto_resume_from_checkpoints = false;
  std::optional<std::int64_t> ddp_timeout;    // seconds that a rank may be silent; 60 unless set
  std::int64_t context_parallel_size = 1;     // ranks that share the tokens of their rows
  std::optional<std::string> ring_attn_func;  // batch_ring, batch_zigzag, batch_stripe, varlen_llama3
  ShardingConfig sharding;                    // fsdp, fsdp_config, deepspeed, dp_shard_size, dp_replicate_size
  bool force_resume = false;  // resume although settings, rows or rewards have changed (rlalgo's own key)

  TrlConfig trl;
  PreferenceConfig preference;  // rl: dpo, ipo, kto, orpo, simpo, cpo
  EbftConfig ebft;              // rl: ebft
  NemoGymConfig nemo_gym;       // nemo_gym_enabled: true

  // Derived
  std::vector<std::string> warnings;           // to be shown once, in order
  std::map<std::string, Place> given;          // full key → where it was set
  std::string file;                            // the configuration file
  data::Json keys = nullptr;                   // everything it says, overrides included
  data::Json settings = data::Json::object();  // full key → effective value of every key that was read and has one
  core::Outside outside = {};                  // what the run reads of the world around it (config/outside.hpp)
  bool outside_kept = false;                   // it is a checkpoint's
  std::shared_ptr<distributed::World> world = nullptr;  // the ranks of the run; null: one

  // What the keys above change of the tokenizer's tokens.
  [[nodiscard]] text::TokenChanges token_changes() const {
    text::TokenChanges out{.renamed = {}, .roles = {}, .tokens = tokens, .extra = additional_special_tokens};
    if (added_tokens_overrides.is_object())
      for (const auto& [id, name] : added_tokens_overrides.items()) out.renamed[std::stoll(id)] = name;
    const auto role = [&](const char* name, const std::optional<std::string>& token) {
      if (token) out.roles[name] = *token;
    };
    role("bos_token", bos_token);
    role("eos_token", eos_token);
    role("pad_token", pad_token);
    role("unk_token", unk_token);
    return out;
  }

  [[nodiscard]] bool was_set(const std::string& key) const { return given.contains(key); }
  // Of trl.async_schedule: record, recorded.
  [[nodiscard]] std::string schedule_file() const {
    return trl.async_schedule_file.value_or(output_dir + "/async_schedule.jsonl");
  }
  // Where `key` was set, for error texts; the key itself when it has its default.
  [[nodiscard]] std::string place(const std::string& key) const {
    const auto found = given.find(key);
    return found == given.end() ? key + " (default)" : found->second.text();
  }
};

}  // namespace rlalgo::config
