// What a person sees of a run: on a terminal one line that is rewritten, in a pipe one plain line per record.
//
//   step 12/200  epoch 0.06  reward 0.531  cut 0.1  loss 0.0123  1,234 tok/s  ETA 3:21
//   step 12/200  epoch 0.06  accuracy 0.75  margin 0.21  loss 0.61  1,234 tok/s  ETA 3:21
//
// `reward` when the method has one, with `cut`, the share of completions that the length limit ended, where there are any; `accuracy`
// and `margin` (rewards/accuracies, rewards/margins) of pairs. A loss below 5e-7 is what rounding leaves of 0, and is shown as 0;
// metrics.jsonl has it as it is. `mfu` is train/mfu, where there is one. An evaluation shows its loss, and reward, accuracy and margin where there are any.
// On a terminal the line also says what a step is doing (core/activity.hpp) while it takes longer than half a second:
//
//   step 13/200  generating 12/32  12 s
//
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
#include <optional>
#include <string>
#include <utility>

#include <rlalgo/core/activity.hpp>
#include <rlalgo/os/clock.hpp>
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
    since_step_ = {};
    if (terminal_) listening_.emplace([this] { show_activity(); });
  }

  void on_step(const StepDone& done) override {
    step_ = done.step;
    recent_.emplace_back(done.seconds, done.result.tokens);
    if (recent_.size() > 20) recent_.pop_front();
    const core::Metrics& metrics = done.result.metrics;
    const double reward = metrics.value("reward");
    if (!std::isnan(reward)) reward_ = reward;
    slow_ = done.seconds > quick;
    since_step_ = {};
    busy_ = "";
    if (terminal_)
      redraw(line({.epoch = done.result.epoch,
                   .reward = reward_,
                   .cut = metrics.value("completions/clipped_ratio"),
                   .accuracy = metrics.value("rewards/accuracies"),
                   .margin = metrics.value("rewards/margins"),
                   .loss = done.result.loss,
                   .mfu = metrics.value("train/mfu")}));
  }

  void on_record(const Record& record) override {
    if (std::any_of(record.values.begin(), record.values.end(), is_evaluation)) {
      std::string text = "eval " + std::to_string(record.step) + "/" + std::to_string(max_steps_);
      for (const char* name : {"eval_loss", "eval_reward", "eval_rewards/accuracies", "eval_rewards/margins"})
        if (const double value = record.value(name); !std::isnan(value))
          text += "  " + std::string(name) + " " + short_number(value);
      on_message(text);
    } else if (!terminal_) {
      print(line({.epoch = record.epoch,
                  .reward = record.value("reward"),
                  .cut = record.value("completions/clipped_ratio"),
                  .accuracy = record.value("rewards/accuracies"),
                  .margin = record.value("rewards/margins"),
                  .loss = record.value("loss"),
                  .grad_norm = record.value("grad_norm"),
                  .rate = record.value("learning_rate"),
                  .mfu = record.value("train/mfu")}) +
            "\n");
    }
  }

  void on_message(const std::string& text) override {
    const std::string current = std::exchange(drawn_, "");
    const char* colour = text.starts_with("warning") ? "33" : text.starts_with("eval ") ? "36" : "";
    print((current.empty() && !busy_drawn_ ? "" : "\r\x1b[K") + painted(text, text.size(), colour) + "\n");
    busy_drawn_ = false;
    if (!current.empty()) redraw(current);
  }

  void on_finish() override {
    listening_.reset();
    if (busy_drawn_) print("\r\x1b[K");
    if (busy_drawn_ && !drawn_.empty()) redraw(std::string(drawn_));
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

  // What a line shows; NaN: nothing.
  struct Shown {
    double epoch = 0.0;
    double reward = no_value, cut = no_value, accuracy = no_value, margin = no_value, loss = no_value,
           grad_norm = no_value, rate = no_value, mfu = no_value;
  };

  [[nodiscard]] std::string line(const Shown& shown) const {
    constexpr double noise = 5e-7;  // of a loss whose terms cancel, in float32
    std::string text = "step " + std::to_string(step_) + "/" + std::to_string(max_steps_);
    const auto add = [&](const char* name, double value) {
      if (!std::isnan(value)) text += std::string("  ") + name + " " + short_number(value);
    };
    if (shown.epoch > 0) add("epoch", shown.epoch);
    add("reward", shown.reward);
    if (shown.cut > 0) add("cut", shown.cut);
    add("accuracy", shown.accuracy);
    add("margin", shown.margin);
    add("loss", std::abs(shown.loss) < noise ? 0.0 : shown.loss);
    add("grad_norm", shown.grad_norm);
    add("lr", shown.rate);
    double seconds = 0.0;
    double tokens = 0.0;
    for (const auto& [s, t] : recent_) seconds += s, tokens += static_cast<double>(t);
    if (tokens > 0 && seconds > 0) text += "  " + format_count(tokens / seconds) + " tok/s";
    add("mfu", shown.mfu);
    if (step_ > first_step_ && step_ < max_steps_)
      text += "  ETA " + format_duration(watch_.seconds() / static_cast<double>(step_ - first_step_) *
                                         static_cast<double>(max_steps_ - step_));
    return text;
  }

  // A step that is quick says nothing of its parts: they would only flicker.
  void show_activity() {
    if (!slow_ && since_step_.seconds() < quick) return;
    std::string text;
    const char* inner = "";
    for (const core::Activity* a = core::Activity::innermost(); a != nullptr; a = a->outer()) {
      std::string part = a->what();
      if (a->total() > 1) part += " " + std::to_string(a->done());
      if (a->total() > 1 && a->done() <= a->total()) part += "/" + std::to_string(a->total());
      text = text.empty() ? part : part + ": " + text;
      if (*inner == '\0') inner = a->what();
    }
    if (text.empty() || (busy_ == inner && since_drawn_.seconds() < between)) return;
    busy_ = inner;
    since_drawn_ = {};
    busy_drawn_ = true;
    text = "step " + std::to_string(std::min(step_ + 1, max_steps_)) + "/" + std::to_string(max_steps_) + "  " + text;
    if (since_step_.seconds() >= 1) text += "  " + format_duration(since_step_.seconds());
    draw(text);
  }

  void redraw(const std::string& text) {
    drawn_ = text;
    busy_drawn_ = false;
    draw(text);
  }

  void draw(const std::string& text) const {
    winsize size{};
    const std::size_t columns = ::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
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
  std::string drawn_;                                   // what stays of the terminal's current line
  os::Stopwatch watch_;

  static constexpr double quick = 0.5, between = 0.1;  // seconds
  bool slow_ = true;                                   // the last step was no quick one
  bool busy_drawn_ = false;                            // the current line says what the step is doing
  std::string busy_;                                   // what that is
  os::Stopwatch since_step_, since_drawn_;
  std::optional<core::Activity::Listening> listening_;
};

}  // namespace rlalgo::run
