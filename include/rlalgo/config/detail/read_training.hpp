// The top-level keys: model, tokenizer, precision, optimization, logging, evaluation, saving.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/detail/read_datasets.hpp>
#include <rlalgo/config/detail/read_optimizer.hpp>
#include <rlalgo/config/detail/read_rows.hpp>
#include <rlalgo/config/detail/read_schedule.hpp>
#include <rlalgo/config/detail/read_trackers.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/cpu/features.hpp>

namespace rlalgo::config::detail {

// Without the key, and with false, the model computes in float32. `auto` is bfloat16 on a GPU, and where the CPU multiplies it, which is faster.
inline void read_precision(Reader& reader, RunConfig& config) {
  reader.record("bf16", config.bfloat16);
  for (const char* key : {"bf16", "bfloat16", "fp16", "float16"}) {
    const Node* node = reader.take(key);
    if (node == nullptr) continue;
    if (node->kind == Kind::string && node->text == "auto") {
      const bool gpu = config.device != "cpu";
      if (*key == 'f' || (!gpu && !cpu::multiplies_bfloat16())) continue;
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
  if (config.float32 && config.bfloat16)
    reader.findings().warnings.push_back("float32 (" + reader.section().find("float32")->place.text() +
                                         ") has no effect: the model computes in bfloat16, and is saved so");
}

inline void read_model(Reader& reader, RunConfig& config) {
  read_rows(reader, model_keys(config));
  // axolotl's older words of gradient_checkpointing say it, too.
  if (const Node* node = reader.section().find("gradient_checkpointing");
      node != nullptr && node->kind == Kind::string) {
    const bool host = lower_equal(node->text, "offload"), disk = lower_equal(node->text, "offload_disk");
    if ((host && config.activation_offloading != "host") || (disk && config.activation_offloading != "disk"))
      reader.refuse(
          8, {.what = "gradient_checkpointing: " + node->text + " and activation_offloading contradict each other",
              .found = "activation_offloading: " + config.activation_offloading,
              .where = node->place.text(),
              .remedy = "write gradient_checkpointing: true, and where its inputs lie in activation_offloading"});
  }
  if (const Node* node = reader.section().find("activation_offloading");
      node != nullptr && config.activation_offloading == "host" && config.device == "cpu")
    reader.findings().warnings.push_back("activation_offloading (" + node->place.text() +
                                         ") has no effect: on the CPU what gradient_checkpointing keeps lies in its "
                                         "memory already");
  if (const Node* section = reader.take("special_tokens"); section != nullptr) {
    Reader nested(*section, "special_tokens.", reader.findings());
    read_rows(nested, token_keys(config));
    nested.finish();
  }
  read_precision(reader, config);
}

inline void read_data(Reader& reader, RunConfig& config) {
  read_datasets(reader, "datasets", config.datasets);
  read_datasets(reader, "test_datasets", config.test_datasets);
  read_rows(reader, data_keys(config));
  // Of preferences it is about rows, and read with them.
  if (!is_preference(config) && !matches_features(config)) read_row(reader, prompt_length_key(config));
}

inline void read_optimization(Reader& reader, RunConfig& config) {
  read_rows(reader, step_keys(config));
  read_optimizer(reader, config);
  read_row(reader, update_keys(config).front());  // the rate: options of schedules are compared with it
  read_schedule(reader, config);
  const Keys rows = update_keys(config);
  read_rows(reader, {rows.begin() + 1, rows.end()});
  read_groups(reader, config);
}

// Of axolotl's counts and distances 0 is the same as nothing: no evaluation, the usual saving.
inline void read_intervals(RunConfig& config) {
  if (config.eval_steps == 0.0 || config.evals_per_epoch == 0) {
    if (!config.eval_strategy) config.eval_strategy = "no";
    if (config.eval_steps == 0.0) config.eval_steps.reset();
    if (config.evals_per_epoch == 0) config.evals_per_epoch.reset();
  }
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
  const Keys rows = output_keys(config);
  read_rows(reader, rows);
  say_idle(reader, rows);
  for (const char* key : {"eval_strategy", "save_strategy", "evaluation_strategy"})
    if (const Node* node = reader.section().find(key); node != nullptr && node->text == "best")
      refuse_lacking(reader, key, std::string(key) + " best", *node,
                     "use steps or epoch; checkpoints are kept up to save_total_limit", false);
  read_intervals(config);
  if (config.save_total_limit == 0) config.save_total_limit = 4;
  if (config.loss_watchdog_patience == 0) config.loss_watchdog_patience = 3;
  bool safetensors = true;
  if (reader.read("save_safetensors", safetensors) && !safetensors)
    refuse_lacking(reader, "save_safetensors", "save_safetensors false", *reader.section().find("save_safetensors"),
                   "weights are always saved as safetensors", false);
  read_trackers(reader, config);
}

}  // namespace rlalgo::config::detail
