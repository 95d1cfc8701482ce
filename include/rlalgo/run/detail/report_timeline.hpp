// The timeline of report.html: what the trainer did with its time, and, where generation is asynchronous, what the
// generator did meanwhile. One bar for each record, as long as its steps took, divided by what they were spent on.
//
//   training     time/publish, time/wait, …, time/optimizer of the record's steps; the rest is blank; evaluations between
//   generation   async/generate_s and async/reward_s against async/producer_idle_s, of the generations that the steps popped
//
// A long run has neighbouring records in one bar.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/run/detail/report_chart.hpp>
#include <rlalgo/run/progress.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run::detail {

class Timeline {
 public:
  explicit Timeline(const std::vector<Record>& records) {
    double now = 0.0;
    std::int64_t before = 0;
    for (const Record& record : records) {
      Bar bar{.begin = now, .end = now, .first_step = before + 1, .last_step = record.step};
      if (const double seconds = record.value(kinds[evaluation].metric); seconds > 0) {
        bar.first_step = record.step;
        bar.end += seconds;
        bar.training[evaluation] = seconds;
      } else if (const double step = record.value("time/step"); step > 0 && record.step > before) {
        const auto steps = static_cast<double>(record.step - before);
        before = record.step;
        bar.end += step * steps;
        for (std::size_t k = 0; k < kinds.size(); ++k)
          if (const double part = record.value(kinds[k].metric); part > 0) bar.training[k] = part * steps;
        add_generation(record, bar);
      }
      if (bar.end > now) bars_.push_back(bar);
      now = bar.end;
    }
    join();
  }

  // Empty where nothing says what the time went to.
  [[nodiscard]] std::string html() const {
    const Parts spent = sum(&Bar::training), generated = sum(&Bar::generation);
    const auto known = std::count_if(spent.begin(), spent.end(), [](double seconds) { return seconds > 0; });
    if (known < 2) return "";
    const bool asynchronous = generated[generation] > 0;
    std::string out = "<h2>Timeline</h2><section class=\"timeline\">" + svg(asynchronous) + "<div class=\"legend\">";
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      if (spent[k] <= 0 && generated[k] <= 0) continue;
      out += "<span><i class=\"f" + std::to_string(k) + "\"></i>" + kinds[k].name + " <b>" + share(spent[k]) + "</b>";
      if (asynchronous && generated[k] > 0) out += ", asynchronously <b>" + share(generated[k]) + "</b>";
      out += "</span>";
    }
    return out + "</div></section>\n";
  }

 private:
  struct Kind {
    const char* metric;
    const char* name;
  };
  static constexpr std::array<Kind, 8> kinds = {{{"time/train", "training"},
                                                 {"time/generate", "generation"},
                                                 {"time/reward", "rewards"},
                                                 {"time/score", "scoring"},
                                                 {"time/publish", "hand-over of weights"},
                                                 {"time/optimizer", "optimizer"},
                                                 {"time/eval", "evaluation"},
                                                 {"time/wait", "wait for generation"}}};
  static constexpr std::size_t generation = 1, rewards = 2, evaluation = 6;
  // In a step, from its beginning.
  static constexpr std::array<std::size_t, 8> order = {4, 7, 1, 2, 3, 0, 5, 6};
  static constexpr std::size_t most_bars = 160;
  static constexpr double width = 1100, left = 84, lane_height = 26, lane_gap = 8;

  using Parts = std::array<double, kinds.size()>;  // seconds, by kind
  struct Bar {
    double begin, end;  // seconds since the first step began, evaluations counted
    std::int64_t first_step, last_step;
    Parts training = {}, generation = {};
  };

  // Per generation: its making and the wait for room before the next one are the time between two of them.
  static void add_generation(const Record& record, Bar& bar) {
    const auto or_zero = [&](const char* name) { return std::fmax(0.0, record.value(name)); };
    const double made = or_zero("async/generate_s"), rewarded = or_zero("async/reward_s");
    const double whole = made + rewarded + or_zero("async/producer_idle_s");
    if (whole <= 0) return;
    bar.generation[generation] = (bar.end - bar.begin) * made / whole;
    bar.generation[rewards] = (bar.end - bar.begin) * rewarded / whole;
  }

  void join() {
    if (bars_.size() <= most_bars) return;
    std::vector<Bar> joined;
    for (std::size_t i = 0; i < most_bars; ++i) {
      const std::size_t first = i * bars_.size() / most_bars, end = (i + 1) * bars_.size() / most_bars;
      Bar bar = bars_[first];
      for (std::size_t j = first + 1; j < end; ++j) {
        bar.end = bars_[j].end;
        bar.last_step = bars_[j].last_step;
        for (std::size_t k = 0; k < kinds.size(); ++k) {
          bar.training[k] += bars_[j].training[k];
          bar.generation[k] += bars_[j].generation[k];
        }
      }
      joined.push_back(bar);
    }
    bars_ = std::move(joined);
  }

  [[nodiscard]] Parts sum(Parts Bar::*lane) const {
    Parts out = {};
    for (const Bar& bar : bars_)
      for (std::size_t k = 0; k < kinds.size(); ++k) out[k] += (bar.*lane)[k];
    return out;
  }
  [[nodiscard]] double whole() const { return bars_.empty() ? 0.0 : bars_.back().end; }
  [[nodiscard]] std::string share(double seconds) const {
    char text[32];
    std::snprintf(text, sizeof text, "%.0f %%", 100 * seconds / whole());
    return text;
  }

  static std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f", value);
    return text;
  }
  [[nodiscard]] double x(double seconds) const { return left + seconds / whole() * (width - left); }

  [[nodiscard]] std::string lane(const char* name, Parts Bar::*parts, double top) const {
    std::string out = "<text x=\"0\" y=\"" + number(top + lane_height / 2 + 4) + "\">" + name + "</text>";
    for (const Bar& bar : bars_) {
      double at = bar.begin;
      for (const std::size_t k : order) {
        const double seconds = std::min((bar.*parts)[k], bar.end - at);
        if (seconds <= 0) continue;
        const std::string steps = bar.first_step < bar.last_step
                                      ? "steps " + std::to_string(bar.first_step) + "–" + std::to_string(bar.last_step)
                                      : "step " + std::to_string(bar.last_step);
        out += "<rect class=\"f" + std::to_string(k) + "\" x=\"" + number(x(at)) + "\" y=\"" + number(top) +
               "\" width=\"" + number(x(at + seconds) - x(at)) + "\" height=\"" + number(lane_height) + "\"><title>" +
               steps + ": " + kinds[k].name + " " + short_number(seconds) + " s</title></rect>";
        at += seconds;
      }
    }
    return out;
  }

  [[nodiscard]] std::string svg(bool asynchronous) const {
    const double bottom = (asynchronous ? 2 : 1) * (lane_height + lane_gap);
    std::string out = "<svg viewBox=\"0 0 " + number(width) + " " + number(bottom + 16) +
                      "\" role=\"img\" aria-label=\"what the time was spent on\">" + lane("trainer", &Bar::training, 0);
    if (asynchronous) out += lane("generator", &Bar::generation, lane_height + lane_gap);
    for (const double fraction : {0.0, 0.25, 0.5, 0.75, 1.0})
      out += std::string("<text text-anchor=\"") +
             (fraction == 0   ? "start"
              : fraction == 1 ? "end"
                              : "middle") +
             "\" x=\"" + number(x(fraction * whole())) + "\" y=\"" + number(bottom + 10) + "\">" +
             format_duration(fraction * whole()) + "</text>";
    return out + "</svg>";
  }

  std::vector<Bar> bars_;
};

}  // namespace rlalgo::run::detail
