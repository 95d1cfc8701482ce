// The top-level keys: model, tokenizer, precision, optimization, logging, evaluation, saving.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/detail/read_datasets.hpp>
#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/detail/read_optimizer.hpp>
#include <rlalgo/config/detail/read_schedule.hpp>
#include <rlalgo/config/detail/read_trackers.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/tensor/bfloat16.hpp>

namespace rlalgo::config::detail {

// What the tokenizer's files say of tokens, changed.
inline void read_special_tokens(Reader& reader, RunConfig& config) {
  const auto filled = [](Reader& from, const std::string& key, std::optional<std::string>& out) {
    read_if_there(from, key, out);
    if (out && out->empty())
      from.judge(
          key, [&] { raise_type(from.prefix() + key, *from.section().find(key), "a token, such as \"<|im_end|>\""); });
  };
  if (const Node* section = reader.take("special_tokens"); section != nullptr) {
    Reader nested(*section, "special_tokens.", reader.findings());
    filled(nested, "bos_token", config.bos_token);
    filled(nested, "eos_token", config.eos_token);
    filled(nested, "pad_token", config.pad_token);
    filled(nested, "unk_token", config.unk_token);
    read_if_there(nested, "additional_special_tokens", config.additional_special_tokens);
    nested.finish();
  }
  read_if_there(reader, "tokens", config.tokens);
  if (reader.section().find("added_tokens_overrides") == nullptr) return reader.recognise("added_tokens_overrides");
  reader.record("added_tokens_overrides", config.added_tokens_overrides);
  const Node* names = reader.take("added_tokens_overrides");
  if (names == nullptr) return;
  static constexpr const char* form = "a section from ids to tokens, such as {128002: \"<think>\"}";
  reader.judge("added_tokens_overrides", [&] {
    if (names->kind != Kind::mapping) raise_type("added_tokens_overrides", *names, form);
    for (const Member& member : names->members) {
      const bool id = !member.key.empty() && member.key.size() < 10 &&
                      member.key.find_first_not_of("0123456789") == std::string::npos;
      if (!id || member.value.kind != Kind::string || member.value.text.empty())
        raise_type("added_tokens_overrides." + member.key, member.value, form);
      config.added_tokens_overrides[member.key] = member.value.text;
    }
  });
}

// Without the key, and with false, the model computes in float32. `auto` is bfloat16 on a GPU, and where the CPU multiplies it, which is faster.
inline void read_precision(Reader& reader, RunConfig& config) {
  reader.record("bf16", config.bfloat16);
  for (const char* key : {"bf16", "bfloat16", "fp16", "float16"}) {
    const Node* node = reader.take(key);
    if (node == nullptr) continue;
    if (node->kind == Kind::string && node->text == "auto") {
      const bool gpu = config.device != "cpu";
      if (*key == 'f' || (!gpu && !tensor::multiplies_bfloat16())) continue;
      config.bfloat16 = true;
      if (gpu) {
        reader.findings().warnings.push_back(std::string(key) + ": auto (" + node->place.text() + "): on " +
                                             config.device +
                                             " the model computes in bfloat16, the optimizer in float32");
        continue;
      }
      reader.findings().warnings.push_back(
          std::string(key) + ": auto (" + node->place.text() +
          "): this CPU multiplies bfloat16, so the model computes in it, the optimizer "
          "in float32. " +
          key + ": false computes in float32");
      continue;
    }
    bool on = false;
    if (!reader.judge(key, [&] { convert(*node, key, on); }) || !on) continue;
    if (*key == 'f') {
      refuse_lacking(reader, key, key, *node,
                     "nothing computes in float16: without the key it trains in float32; bf16: true halves the "
                     "weights' memory");
      continue;
    }
    config.bfloat16 = true;
    if (config.device != "cpu") continue;
    reader.findings().warnings.push_back(std::string(key) + " (" + node->place.text() +
                                         "): the model computes in bfloat16, the optimizer in float32. A CPU without "
                                         "bfloat16 instructions takes several times as long as in float32");
  }
  read_if_there(reader, "float32", config.float32);
  if (config.float32 && config.bfloat16)
    reader.findings().warnings.push_back("float32 (" + reader.section().find("float32")->place.text() +
                                         ") has no effect: the model computes in bfloat16, and is saved so");
}

inline void read_model(Reader& reader, RunConfig& config) {
  reader.read("base_model", config.base_model);
  reader.read("model_revision", config.model_revision);
  reader.read("revision_of_model", config.model_revision);
  reader.read("tokenizer_config", config.tokenizer_config);
  reader.read("chat_template", config.chat_template);
  reader.read("chat_template_jinja", config.chat_template_jinja);
  reader.record("gradient_checkpointing", config.gradient_checkpointing);
  if (const Node* node = reader.take("gradient_checkpointing"); node != nullptr) {
    if (node->kind == Kind::string && (node->text == "offload" || node->text == "offload_disk"))
      config.gradient_checkpointing = true;  // there is no other memory to offload to
    else
      reader.judge("gradient_checkpointing",
                   [&] { convert(*node, "gradient_checkpointing", config.gradient_checkpointing); });
  }
  read_special_tokens(reader, config);
  read_precision(reader, config);
}

inline void read_data(Reader& reader, RunConfig& config) {
  read_datasets(reader, "datasets", config.datasets);
  read_datasets(reader, "test_datasets", config.test_datasets);
  reader.read("val_set_size", config.val_set_size);
  reader.read("shuffle_merged_datasets", config.shuffle_merged_datasets);
  reader.read("shuffle_before_merging_datasets", config.shuffle_before_merging_datasets);
  reader.read("dataset_exact_deduplication", config.dataset_exact_deduplication);
  // Of preferences it is about rows, and read with them.
  if (!is_preference(config) && !matches_features(config))
    reader.read_choice("excess_length_strategy", config.excess_prompts, {"raise", "drop"});
  reader.record("seed", config.seed);
  std::int64_t seed = static_cast<std::int64_t>(config.seed);
  if (reader.read("seed", seed) && seed < 0)
    reader.refuse(6, {.what = "seed is out of range",
                      .found = std::to_string(seed),
                      .expected = "0 or more",
                      .where = reader.section().find("seed")->place.text()});
  config.seed = static_cast<std::uint64_t>(seed);
}

inline void read_optimization(Reader& reader, RunConfig& config) {
  reader.read("micro_batch_size", config.micro_batch_size);
  reader.read("gradient_accumulation_steps", config.gradient_accumulation_steps);
  reader.read("eval_batch_size", config.eval_batch_size);
  reader.read("num_epochs", config.num_epochs);
  reader.read("max_steps", config.max_steps);
  read_optimizer(reader, config);
  reader.read("learning_rate", config.learning_rate);
  read_schedule(reader, config);
  reader.read("warmup_steps", config.warmup_steps);
  reader.read("warmup_ratio", config.warmup_ratio);
  reader.read("weight_decay", config.weight_decay);
  reader.read("adam_beta1", config.adam_beta1);
  reader.read("adam_beta2", config.adam_beta2);
  reader.read("adam_epsilon", config.adam_epsilon);
  reader.read("max_grad_norm", config.max_grad_norm);
  reader.read("ddp_timeout", config.ddp_timeout);
  if (reader.read("sequence_parallel_degree", config.context_parallel_size))
    reader.findings().warnings.push_back("sequence_parallel_degree is now context_parallel_size");
  reader.read("context_parallel_size", config.context_parallel_size);
  reader.read_choice("ring_attn_func", config.ring_attn_func,
                     {"batch_ring", "batch_zigzag", "batch_stripe", "varlen_llama3"});
}

// Of axolotl's counts and distances 0 is the same as nothing: no evaluation, the usual saving.
inline void read_intervals(Reader& reader, RunConfig& config) {
  reader.read("eval_steps", config.eval_steps);
  read_if_there(reader, "eval_on_start", config.eval_on_start);
  reader.read("evals_per_epoch", config.evals_per_epoch);
  if (config.eval_steps == 0.0 || config.evals_per_epoch == 0) {
    if (!config.eval_strategy) config.eval_strategy = "no";
    if (config.eval_steps == 0.0) config.eval_steps.reset();
    if (config.evals_per_epoch == 0) config.evals_per_epoch.reset();
  }
  reader.read("save_steps", config.save_steps);
  reader.read("saves_per_epoch", config.saves_per_epoch);
  if (config.save_steps == 0.0) config.save_steps.reset();
  if (config.saves_per_epoch == 0) config.saves_per_epoch.reset();
}

// Whose evaluations there are no rows for.
inline void warn_of_no_evaluation(Reader& reader, const RunConfig& config) {
  if (config.val_set_size > 0 || !config.test_datasets.empty()) return;
  for (const char* key : {"eval_steps", "evals_per_epoch", "eval_on_start", "eval_strategy", "evaluation_strategy",
                          "trl.num_generations_eval"}) {
    if (!config.was_set(key) || config.eval_strategy == "no") continue;
    if (std::string_view(key) == "eval_on_start" && !config.eval_on_start.value_or(false)) continue;
    reader.findings().warnings.push_back(
        std::string(key) + " (" + config.place(key) +
        ") has no effect: there is nothing to evaluate on. val_set_size (a fraction such as 0.05) or test_datasets "
        "give rows");
  }
}

inline void read_cadence(Reader& reader, RunConfig& config) {
  reader.read("output_dir", config.output_dir);
  reader.read("logging_steps", config.logging_steps);
  const std::vector<std::string> strategies = {"no", "steps", "epoch", "best"};
  for (const char* old : {"evaluation_strategy"})
    if (reader.read_choice(old, config.eval_strategy, strategies))
      reader.findings().warnings.push_back(std::string(old) + " is now eval_strategy");
  reader.read_choice("eval_strategy", config.eval_strategy, strategies);
  reader.read_choice("save_strategy", config.save_strategy, strategies);
  for (const char* key : {"eval_strategy", "save_strategy", "evaluation_strategy"})
    if (const Node* node = reader.section().find(key); node != nullptr && node->text == "best")
      refuse_lacking(reader, key, std::string(key) + " best", *node,
                     "use steps or epoch; checkpoints are kept up to save_total_limit", false);
  read_intervals(reader, config);
  reader.read("save_total_limit", config.save_total_limit);
  if (config.save_total_limit == 0) config.save_total_limit = 4;
  read_if_there(reader, "loss_watchdog_threshold", config.loss_watchdog_threshold);
  if (config.loss_watchdog_threshold) {
    read_if_there(reader, "loss_watchdog_patience", config.loss_watchdog_patience);
    if (config.loss_watchdog_patience == 0) config.loss_watchdog_patience = 3;
    if (config.loss_watchdog_patience < 0)
      reader.refuse_own(6, {.what = "loss_watchdog_patience is out of range",
                            .found = std::to_string(config.loss_watchdog_patience),
                            .expected = "1 or more",
                            .where = reader.section().find("loss_watchdog_patience")->place.text()});
  }
  reader.read("save_only_model", config.save_only_model);
  reader.read("save_first_step", config.save_first_step);
  bool safetensors = true;
  if (reader.read("save_safetensors", safetensors) && !safetensors)
    refuse_lacking(reader, "save_safetensors", "save_safetensors false", *reader.section().find("save_safetensors"),
                   "weights are always saved as safetensors", false);
  reader.read("use_tensorboard", config.use_tensorboard);
  read_trackers(reader, config);
  reader.read("resume_from_checkpoint", config.resume_from_checkpoint);
  reader.read("auto_resume_from_checkpoints", config.auto_resume_from_checkpoints);
  reader.read("force_resume", config.force_resume);
}

}  // namespace rlalgo::config::detail
