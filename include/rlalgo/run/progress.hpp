// What a person sees of a run: on a terminal one line that is rewritten, in a pipe one plain line per record.
//
//   step 12/200  epoch 0.06  reward 0.531  loss 0.0123  1,234 tok/s  ETA 3:21
//
// `reward` when the method has one. An evaluation shows its loss, and reward, accuracy and margin where there are any.
// Throughput is over the last 20 steps. The estimate is the wall time of this process per step (evaluation and saving
// included) times the steps left. Evaluations and notices (saved …, warning …) are lines of their own. On a terminal the
// step is bold, an evaluation cyan and a warning yellow, unless NO_COLOR is set; a pipe never gets an escape sequence.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <utility>

#include <rlalgo/core/clock.hpp>
#include <rlalgo/run/observer.hpp>
#include <rlalgo/run/terminal.hpp>

namespace rlalgo::run {

// "7 s", "3:21", "2:03:04".
[[nodiscard]] inline std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto total = static_cast<long long>(std::llround(seconds));
  char text[48];
  if (total < 60)
    std::snprintf(text, sizeof text, "%lld s", total);
  else if (total < 3600)
    std::snprintf(text, sizeof text, "%lld:%02lld", total / 60, total % 60);
  else
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", total / 3600, total / 60 % 60, total % 60);
  return text;
}

// Whole number with thousands separators.
[[nodiscard]] inline std::string format_count(double value) {
  std::string digits = std::to_string(static_cast<long long>(std::llround(value)));
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (digits[0] == '-' ? 1 : 0); at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

class Progress : public Observer {
 public:
  explicit Progress(int descriptor = STDOUT_FILENO)
      : Progress(descriptor, ::isatty(descriptor) == 1, shows_colours(descriptor)) {}
  Progress(int descriptor, bool terminal, bool colours = false)
      : descriptor_(descriptor), terminal_(terminal), colours_(colours) {}

  void on_start(const RunStart& start) override {
    step_ = first_step_ = start.first_step;
    max_steps_ = start.max_steps;
    watch_ = {};
  }

  void on_step(const StepDone& done) override {
    step_ = done.step;
    recent_.emplace_back(done.seconds, done.result.tokens);
    if (recent_.size() > 20) recent_.pop_front();
    const double reward = done.result.metrics.value("reward");
    if (!std::isnan(reward)) reward_ = reward;
    if (terminal_) redraw(line(done.result.epoch, reward_, done.result.loss));
  }

  void on_record(const Record& record) override {
    if (std::any_of(record.values.begin(), record.values.end(), is_evaluation)) {
      std::string text = "eval " + std::to_string(record.step) + "/" + std::to_string(max_steps_);
      for (const char* name : {"eval_loss", "eval_reward", "eval_rewards/accuracies", "eval_rewards/margins"})
        if (const double value = record.value(name); !std::isnan(value))
          text += "  " + std::string(name) + " " + short_number(value);
      on_message(text);
    } else if (!terminal_) {
      print(line(record.epoch, record.value("reward"), record.value("loss"), record.value("grad_norm"),
                 record.value("learning_rate")) +
            "\n");
    }
  }

  void on_message(const std::string& text) override {
    const std::string current = std::exchange(drawn_, "");
    const char* colour = text.starts_with("warning") ? "33" : text.starts_with("eval ") ? "36" : "";
    print((current.empty() ? "" : "\r\x1b[K") + painted(text, text.size(), colour) + "\n");
    if (!current.empty()) redraw(current);
  }

  void on_finish() override {
    if (!drawn_.empty()) print("\n");
    drawn_.clear();
  }

 private:
  static bool is_evaluation(const std::pair<std::string, double>& entry) { return entry.first.starts_with("eval_"); }
  static std::string short_number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, std::isnan(value) ? "-" : "%.4g", value);
    return text;
  }

  std::string line(double epoch, double reward, double loss, double grad_norm = no_value,
                   double rate = no_value) const {
    std::string text = "step " + std::to_string(step_) + "/" + std::to_string(max_steps_);
    const auto add = [&](const char* name, double value) {
      if (!std::isnan(value)) text += std::string("  ") + name + " " + short_number(value);
    };
    if (epoch > 0) add("epoch", epoch);
    add("reward", reward);
    add("loss", loss);
    add("grad_norm", grad_norm);
    add("lr", rate);
    double seconds = 0.0;
    double tokens = 0.0;
    for (const auto& [s, t] : recent_) seconds += s, tokens += static_cast<double>(t);
    if (tokens > 0 && seconds > 0) text += "  " + format_count(tokens / seconds) + " tok/s";
    if (step_ > first_step_ && step_ < max_steps_)
      text += "  ETA " + format_duration(watch_.seconds() / static_cast<double>(step_ - first_step_) *
                                         static_cast<double>(max_steps_ - step_));
    return text;
  }

  void redraw(const std::string& text) {
    winsize size{};
    const std::size_t columns = ::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
    drawn_ = text;
    const std::string shown = text.substr(0, columns - 1);
    print("\r\x1b[K" + painted(shown, std::min(shown.find("  "), shown.size()), "1"));
  }

  // The first `length` characters in a colour; "": as they are.
  [[nodiscard]] std::string painted(const std::string& text, std::size_t length, const std::string& colour) const {
    if (!colours_ || colour.empty()) return text;
    return "\x1b[" + colour + "m" + text.substr(0, length) + "\x1b[0m" + text.substr(length);
  }

  // Progress is no result: a reader that went away does not end the run.
  void print(const std::string& text) const {
    std::size_t at = 0;
    while (at < text.size()) {
      const ssize_t n = ::write(descriptor_, text.data() + at, text.size() - at);
      if (n < 0 && errno != EINTR) return;
      if (n > 0) at += static_cast<std::size_t>(n);
    }
  }

  int descriptor_;
  bool terminal_;
  bool colours_;
  std::int64_t first_step_ = 0;
  std::int64_t max_steps_ = 0;
  std::int64_t step_ = 0;
  double reward_ = no_value;
  std::deque<std::pair<double, std::int64_t>> recent_;  // seconds, tokens
  std::string drawn_;                                   // the text on the terminal's current line
  core::Stopwatch watch_;
};

}  // namespace rlalgo::run
