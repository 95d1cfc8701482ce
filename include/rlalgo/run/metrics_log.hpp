// metrics.jsonl: one JSON object per logged step, appended whole.
//
// Key order: step, epoch, loss, grad_norm, learning_rate, the method's metrics, time/…; evaluations are lines of their
// own with eval_… names. Floats print as the shortest decimal that reads back equal; NaN and infinities as null. On
// resume the file becomes the history that the checkpoint carries, so records beyond the resumed step are gone and the
// file of an interrupted and resumed run equals that of an uninterrupted one except for time/….
//
// Errors: [rlalgo.os.1] the file cannot be written (nothing of the line remains).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

inline constexpr const char* metrics_file = "metrics.jsonl";

class MetricsLog {
 public:
  explicit MetricsLog(const std::filesystem::path& output_dir) : file_(output_dir / metrics_file) {}

  // Starts over with these records: none for a fresh run, the checkpoint's log_history on resume.
  void restart(const Json& history = Json::array()) {
    lines_.clear();
    std::string text;
    for (const Json& entry : history) {
      lines_.push_back(to_line(to_record(entry)));
      text += lines_.back() + '\n';
    }
    file_.replace(text);
  }

  // Where output_dir was taken away: whether the file is gone, and the same file anew.
  [[nodiscard]] bool gone() const { return file_.gone(); }
  void bring_back() { file_.bring_back(); }

  void append(const Record& record) {
    std::string line = to_line(record);
    file_.append(line + '\n');
    lines_.push_back(std::move(line));
  }

  // Every line so far, for trainer_state.json.
  [[nodiscard]] const std::vector<std::string>& lines() const noexcept { return lines_; }

 private:
  detail::ByteFile file_;
  std::vector<std::string> lines_;
};

}  // namespace rlalgo::run
