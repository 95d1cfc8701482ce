// What a run is going to do, as far as it is known before its first step: rows, steps, what is trained, where, and about how much
// memory that takes. `rlalgo train` prints it as a few lines; `train --dry-run` adds rows and times; `preprocess --debug` shows
// the rows of every method.
//
//   data    240 prompts, 12,345 tokens, the longest 83; 24 more held out
//   step    4 prompts × 8 completions of up to 256 tokens, micro-batches of 8
//   run     60 steps, 60.0 an epoch; evaluation before the first step and every 10; checkpoints every 20
//   model   134.5 million parameters, 4.9 million of them trained (lora, r 16), in float32 (bf16 is not set)
//   device  cpu, 2 threads; at most about 2.1 GB of 15.6 GB: weights 538 MB, gradients …
//   output  out
//
// Memory is an estimate, from above, of a rank: memory_estimate.hpp. On a device other than the CPU one more line says what generation
// takes of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/run/progress.hpp>

namespace rlalgo::assembly {

// A row as a model sees it.
struct ShownRow {
  std::string title = {};               // "pair 0, chosen"
  std::vector<data::TokenId> ids = {};  //
  std::vector<std::uint8_t> loss = {};  // [ids] 1: its likelihood is trained
  bool desirable = true;
  std::string then = {};  // what comes behind it: "up to 256 tokens are drawn"
};

struct Overview {
  std::string unit = "rows";  // prompts, pairs, rows, documents
  std::int64_t rows = 0, evaluation_rows = 0;
  std::int64_t tokens = 0, longest = 0;  // of all rows, and of the longest
  bool grows = false;  // rows come from somewhere else while it runs (an environment): tokens are not known
  std::int64_t rows_per_step = 0;
  std::int64_t completions_per_row = 0;  // drawn for each; 0: rows have their answers
  std::int64_t completion_length = 0;    // tokens at most of a drawn completion
  std::int64_t micro_batch_size = 0;
  std::int64_t micro_batch_tokens = 0;  // of one micro-batch, at most
  std::int64_t steps = 0;
  double steps_per_epoch = 0.0;
  std::string schedule = {};  // of evaluations and checkpoints
  std::int64_t ranks = 1;

  std::int64_t parameters = 0, trained = 0;
  std::string training = {};                                // how they are trained: "lora, r 16"
  std::string dtype = {};                                   // and why
  std::string device = {};                                  // and threads
  std::vector<std::pair<std::string, double>> memory = {};  // bytes, by what for
  double memory_limit = 0.0;                                // of the device; 0: not known
  std::int64_t ranks_here = 1;                              // that share it
  std::string elsewhere = {};                               // what lies elsewhere, and where
  std::string generation = {};                              // how a device is divided between it and training
  std::string output_dir = {};

  // Of a dry run; 0: not measured.
  double generation_seconds = 0.0, training_seconds = 0.0;  // of a step, at most

  // Up to so many rows; and their text, special tokens shown. Valid while the callback runs that got the overview.
  std::function<std::vector<ShownRow>(std::size_t)> samples = {};
  std::function<std::string(std::span<const data::TokenId>)> decode = {};

  [[nodiscard]] double memory_bytes() const {
    double out = 0.0;
    for (const auto& [what, bytes] : memory) out += bytes;
    return out;
  }
};

// "1.2 GB", "538 MB": powers of ten, as disks and models are sold.
[[nodiscard]] inline std::string bytes_text(double bytes) {
  char text[32];
  if (bytes >= 1e9)
    std::snprintf(text, sizeof text, "%.1f GB", bytes / 1e9);
  else
    std::snprintf(text, sizeof text, "%.0f %s", bytes >= 1e6 ? bytes / 1e6 : std::ceil(bytes / 1e3),
                  bytes >= 1e6 ? "MB" : "kB");
  return text;
}

// "134.5 million", "12,345".
[[nodiscard]] inline std::string count_text(std::int64_t count) {
  char text[32];
  if (count < 1'000'000) return run::format_count(static_cast<double>(count));
  if (count < 1'000'000'000)
    std::snprintf(text, sizeof text, "%.1f million", static_cast<double>(count) / 1e6);
  else
    std::snprintf(text, sizeof text, "%.2f billion", static_cast<double>(count) / 1e9);
  return text;
}

namespace detail {

[[nodiscard]] inline std::string data_text(const Overview& o) {
  if (o.grows) return o.unit + " come from the environment";
  std::string out =
      count_text(o.rows) + " " + o.unit + ", " + count_text(o.tokens) + " tokens, the longest " + count_text(o.longest);
  if (o.evaluation_rows > 0) out += "; " + count_text(o.evaluation_rows) + " more held out";
  return out;
}

[[nodiscard]] inline std::string step_text(const Overview& o) {
  std::string out = count_text(o.rows_per_step) + " " + o.unit;
  if (o.completions_per_row > 0) {
    out += " × " + count_text(o.completions_per_row) + " completions";
    if (o.completion_length > 0) out += " of up to " + count_text(o.completion_length) + " tokens";
  }
  return out + ", micro-batches of " + count_text(o.micro_batch_size) +
         (o.ranks > 1 ? ", dealt to " + std::to_string(o.ranks) + " ranks" : "");
}

[[nodiscard]] inline std::string model_text(const Overview& o) {
  std::string out = count_text(o.parameters) + " parameters, " +
                    (o.trained == o.parameters ? "all" : count_text(o.trained) + " of them") + " trained";
  if (!o.training.empty()) out += " (" + o.training + ")";
  return out + ", in " + o.dtype;
}

[[nodiscard]] inline std::string device_text(const Overview& o) {
  std::string out = o.device + "; at most about " + bytes_text(o.memory_bytes());
  if (o.ranks > 1) out += " a rank";
  if (o.ranks_here > 1)
    out += ", " + bytes_text(static_cast<double>(o.ranks_here) * o.memory_bytes()) + " for " +
           std::to_string(o.ranks_here);
  if (o.memory_limit > 0) out += " of " + bytes_text(o.memory_limit);
  std::string parts;
  for (const auto& [what, bytes] : o.memory)
    if (bytes > 0) parts += (parts.empty() ? ": " : ", ") + what + " " + bytes_text(bytes);
  return out + parts + (o.elsewhere.empty() ? "" : "; " + o.elsewhere);
}

}  // namespace detail

// The lines above, for a person.
[[nodiscard]] inline std::vector<std::string> overview_lines(const Overview& o) {
  char epochs[32];
  std::snprintf(epochs, sizeof epochs, "%.1f", o.steps_per_epoch);
  std::vector<std::string> out = {"data    " + detail::data_text(o), "step    " + detail::step_text(o),
                                  "run     " + count_text(o.steps) + " steps" +
                                      (o.steps_per_epoch > 0 ? ", " + std::string(epochs) + " an epoch" : "") +
                                      (o.schedule.empty() ? "" : "; " + o.schedule),
                                  "model   " + detail::model_text(o), "device  " + detail::device_text(o)};
  if (!o.generation.empty()) out.push_back("pages   " + o.generation);
  out.push_back("output  " + o.output_dir);
  return out;
}

// Of a dry run: what was measured.
[[nodiscard]] inline std::vector<std::string> time_lines(const Overview& o) {
  const double step = o.generation_seconds + o.training_seconds;
  if (step <= 0) return {"time    not estimated: it depends on other processes"};
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3g", step);
  std::string out = "time    a step takes about " + std::string(seconds) + " s";
  if (o.generation_seconds > 0) {
    std::snprintf(seconds, sizeof seconds, "%.3g", o.generation_seconds);
    out += " at most (" + std::string(seconds) + " s of them generation, if every completion is as long as it may be)";
  }
  return {out + ", the run about " + run::format_duration(step * static_cast<double>(o.steps)) +
          ", rewards, evaluations and checkpoints aside"};
}

}  // namespace rlalgo::assembly
