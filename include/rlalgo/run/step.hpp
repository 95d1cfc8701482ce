// What one optimizer step reports to the loop, and the record that the loop makes of the steps since the last log.
//
// Steps are numbered as users see them: step n is the n-th optimizer step, so the first is 1 and a record of step n
// describes weights after n updates. `epoch` counts passes over the data, in fractions.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/metrics.hpp>

namespace rlalgo::run {

using Json = nlohmann::ordered_json;

inline constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

struct StepResult {
  double loss = no_value;                                 // of the whole step: sum over micro-batches and ranks
  double grad_norm = no_value;                            // before clipping
  double learning_rate = no_value;                        // the rate this step used (with warm-up, 0 at step 1)
  double epoch = 0.0;                                     // after this step
  core::Metrics metrics{};                                // the method's metrics, exact over the step
  std::vector<std::pair<std::string, double>> seconds{};  // parts of the step, logged as time/<name>
  std::int64_t tokens = 0;                                // prompt + completion tokens handled, for tokens/s
  std::vector<std::string> warnings{};                    // for the user; of equal ones the first is shown
};

// One line of metrics.jsonl. NaN and infinite values print as null.
struct Record {
  std::int64_t step = 0;
  double epoch = 0.0;
  std::vector<std::pair<std::string, double>> values;  // in print order

  [[nodiscard]] double value(const std::string& name) const {
    for (const auto& [key, number] : values)
      if (key == name) return number;
    return no_value;
  }
};

// The shortest decimal that reads back as the same double; always marked as a real number ("2.0"), null when not
// finite.
[[nodiscard]] inline std::string format_number(double value) {
  if (!std::isfinite(value)) return "null";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

[[nodiscard]] inline std::string to_line(const Record& record) {
  std::string out = "{\"step\": " + std::to_string(record.step) + ", \"epoch\": " + format_number(record.epoch);
  for (const auto& [name, value] : record.values) out += ", " + Json(name).dump() + ": " + format_number(value);
  return out + "}";
}

// The record of an evaluation: its metrics by the names they have in metrics.jsonl.
[[nodiscard]] inline Record evaluation_record(std::int64_t step, double epoch, const core::Metrics& metrics,
                                              double seconds) {
  Record record{step, epoch, {}};
  for (const auto& [name, value] : metrics.values()) record.values.emplace_back("eval_" + name, value);
  record.values.emplace_back("time/eval", seconds);
  return record;
}

// Inverse of to_line; entries that are not numbers read as NaN. Throws nlohmann's exception when step is missing.
[[nodiscard]] inline Record to_record(const Json& line) {
  Record record;
  record.step = line.at("step").get<std::int64_t>();
  for (const auto& [name, value] : line.items()) {
    const double number = value.is_number() ? value.get<double>() : no_value;
    if (name == "epoch")
      record.epoch = number;
    else if (name != "step")
      record.values.emplace_back(name, number);
  }
  return record;
}

}  // namespace rlalgo::run
