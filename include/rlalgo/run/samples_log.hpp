// samples.jsonl: a few rollouts of each logged step, so that a reader sees what the rewards reward.
//
// One object per sample: step, prompt, completion, rewards (function name → value, null = not applicable), advantage,
// whether the completion was cut at the length limit, what reward functions logged about it, if anything, and, where an
// environment spoke, too, who said what: "turns": [{"model": "7"}, {"environment": "higher"}, {"model": "8"}]. A
// checkpoint carries a copy, and a resumed run starts from it: to the byte the file of a run that was never interrupted.
//
// Errors: [rlalgo.os.1] the file cannot be written (nothing of the line remains).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

inline constexpr const char* samples_file = "samples.jsonl";
inline constexpr const char* pairs_file =
    "pairs.json";  // of preference runs: the pairs with the largest and smallest margins

// A part of a completion, as one side said it.
struct Turn {
  bool model = true;  // false: a tool or an environment
  std::string text{};
};

struct Sample {
  std::string prompt{};
  std::string completion{};
  std::vector<std::pair<std::string, double>> rewards{};  // NaN = not applicable
  double advantage = 0.0;
  bool cut = false;              // ended by the length limit
  Json logged{};                 // object of log_extra columns; null = none
  std::vector<Turn> turns = {};  // of a completion that is not all the model's; together they are the completion
};

// A prompt as a person reads it: a string as it is, messages as "role: content" lines.
[[nodiscard]] std::string readable_prompt(const Json& prompt);

class SamplesLog {
 public:
  explicit SamplesLog(const std::filesystem::path& output_dir) : file_(output_dir / samples_file) {}

  // The lines of some samples of one step.
  [[nodiscard]] static std::string lines(std::int64_t step, const std::vector<Sample>& samples);

  // Starts over: with nothing, or with the copy that a checkpoint carries (none there: with nothing).
  void restart() { file_.replace(""); }
  void restart(const std::filesystem::path& checkpoint) { file_.replace_by(checkpoint / samples_file); }
  // Keeps the samples up to `step`: for a checkpoint of before they carried a copy.
  void cut(std::int64_t step);

  // The copy for a checkpoint; none of an empty file.
  void copy_to(const std::filesystem::path& checkpoint) const;

  // Where output_dir was taken away: whether the file is gone, and the same file anew.
  [[nodiscard]] bool gone() const { return file_.gone(); }
  void bring_back() { file_.bring_back(); }

  void append(const std::string& lines) { file_.append(lines); }

 private:
  // A completion may end inside a UTF-8 sequence: what is not UTF-8 becomes U+FFFD.
  static std::string text(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }
  detail::ByteFile file_;
};

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/samples_log_impl.hpp>
#endif
