// trainer_state.json in the layout of transformers' TrainerState, so that tools that read its log_history read ours.
//
// Fields we have no meaning for keep transformers' neutral values (best_*, trial_*, total_flos 0). log_history repeats
// the lines of metrics.jsonl and is what a resumed run continues from; each entry stands on its own line.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

struct TrainerState {
  std::int64_t step = 0;
  double epoch = 0.0;
  std::int64_t max_steps = 0;
  double num_epochs = 1.0;  // those that are begun count whole
  std::int64_t logging_steps = 1;
  std::int64_t save_steps = 0;
  std::int64_t eval_steps = 0;
  std::int64_t tokens = 0;  // seen so far
  std::int64_t train_batch_size = 1;
};

[[nodiscard]] inline std::string to_text(const TrainerState& state, const std::vector<std::string>& history) {
  std::string out = "{\n";
  const auto line = [&](const char* key, const std::string& value) {
    out += std::string("  \"") + key + "\": " + value + ",\n";
  };
  const auto integer = [](std::int64_t value) { return std::to_string(value); };
  line("best_global_step", "null");
  line("best_metric", "null");
  line("best_model_checkpoint", "null");
  line("epoch", format_number(state.epoch));
  line("eval_steps", integer(state.eval_steps));
  line("global_step", integer(state.step));
  line("is_hyper_param_search", "false");
  line("is_local_process_zero", "true");
  line("is_world_process_zero", "true");
  out += "  \"log_history\": [";
  for (std::size_t i = 0; i < history.size(); ++i) out += (i == 0 ? "\n    " : ",\n    ") + history[i];
  out += history.empty() ? "],\n" : "\n  ],\n";
  line("logging_steps", integer(state.logging_steps));
  line("max_steps", integer(state.max_steps));
  line("num_input_tokens_seen", integer(state.tokens));
  line("num_train_epochs", integer(static_cast<std::int64_t>(std::ceil(state.num_epochs - 1e-9))));
  line("save_steps", integer(state.save_steps));
  line("stateful_callbacks", "{}");
  line("total_flos", "0");
  line("train_batch_size", integer(state.train_batch_size));
  line("trial_name", "null");
  out += "  \"trial_params\": null\n}\n";
  return out;
}

}  // namespace rlalgo::run
