// samples.jsonl: a few rollouts of each logged step, so that a reader sees what the rewards reward.
//
// One object per sample: step, prompt, completion, rewards (function name → value, null = not applicable), advantage,
// whether the completion was cut at the length limit, and what reward functions logged about it, if anything. On
// resume, samples beyond the resumed step are removed.
//
// Errors: [rlalgo.core.1] the file cannot be written (nothing of the line remains).
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

inline constexpr const char* samples_file = "samples.jsonl";
inline constexpr const char* pairs_file =
    "pairs.json";  // of preference runs: the pairs with the largest and smallest margins

struct Sample {
  std::string prompt;
  std::string completion;
  std::vector<std::pair<std::string, double>> rewards;  // NaN = not applicable
  double advantage = 0.0;
  bool cut = false;  // ended by the length limit
  Json logged;       // object of log_extra columns; null = none
};

// A prompt as a person reads it: a string as it is, messages as "role: content" lines.
[[nodiscard]] inline std::string readable_prompt(const Json& prompt) {
  if (prompt.is_string()) return prompt.get<std::string>();
  if (!prompt.is_array()) return prompt.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  for (const Json& message : prompt) {
    const Json content = message.is_object() ? message.value("content", Json()) : message;
    if (!out.empty()) out += "\n";
    if (message.is_object() && message.contains("role") && message["role"].is_string())
      out += message["role"].get<std::string>() + ": ";
    out +=
        content.is_string() ? content.get<std::string>() : content.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return out;
}

class SamplesLog {
 public:
  explicit SamplesLog(const std::filesystem::path& output_dir) : file_(output_dir / samples_file) {}

  // Keeps the samples up to `step`: none for a fresh run (step 0).
  void restart(std::int64_t step) {
    std::string kept;
    std::ifstream in(file_.path(), std::ios::binary);
    std::string line;
    while (step > 0 && std::getline(in, line)) {
      const Json entry = Json::parse(line, nullptr, false);
      const bool whole = entry.is_object() && entry.contains("step") && entry["step"].is_number_integer() && !in.eof();
      if (whole && entry["step"].get<std::int64_t>() <= step) kept += line + '\n';
    }
    in.close();
    file_.replace(kept);
  }

  void append(std::int64_t step, const std::vector<Sample>& samples) {
    for (const Sample& sample : samples) {
      std::string rewards;
      for (const auto& [name, value] : sample.rewards)
        rewards += (rewards.empty() ? "" : ", ") + text(name) + ": " + format_number(value);
      file_.append("{\"step\": " + std::to_string(step) + ", \"prompt\": " + text(sample.prompt) +
                   ", \"completion\": " + text(sample.completion) + ", \"rewards\": {" + rewards +
                   "}, \"advantage\": " + format_number(sample.advantage) +
                   ", \"cut\": " + (sample.cut ? "true" : "false") +
                   (sample.logged.is_null() ? "" : ", \"logged\": " + text(sample.logged)) + "}\n");
    }
  }

 private:
  // A completion may end inside a UTF-8 sequence: what is not UTF-8 becomes U+FFFD.
  static std::string text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }
  detail::ByteFile file_;
};

}  // namespace rlalgo::run
