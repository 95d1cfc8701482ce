// Learning-rate schedules: functions of the optimizer step.
//
//   w = warm-up steps, T = total steps, t = step (0-based), p = (t − w)/max(1, T − w), m = minimum ratio
//   t < w                  t / max(1, w), squared with quadratic_warmup
//   linear                 max(0, (T − t)/max(1, T − w))
//   cosine                 max(0, (1 − m)·½(1 + cos πp) + m);   cosine_with_min_lr is the same (m is meant to be set)
//   constant               1 from the first step on
//   constant_with_warmup   1 after the warm-up
//
// Source: the schedules of transformers by these names; axolotl's cosine_min_lr_ratio m, cosine_constant_lr_ratio c (T
// is replaced by ⌊c·T⌋ and t stops there, so the rate stays at m) and lr_quadratic_warmup (with plain cosine). The rate
// of step t is the one used in that update: with warm-up the first update has rate 0. Host only.
//
// Errors (usage): [rlalgo.optim.2] no schedule of that name; [.3] a ratio outside 0 … 1 or a negative number of steps;
// [.5] a schedule that falls, without a number of steps.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/error.hpp>

namespace rlalgo::optim {

struct ScheduleConfig {
  std::string name = "linear";
  double learning_rate = 1e-6;  // the peak
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;   // 0 = as many as the run has
  double min_ratio = 0.0;         // cosine: rate at the end / peak
  double constant_ratio = 0.0;    // cosine: share of the run after which the rate stays at its minimum; 0 = never
  bool quadratic_warmup = false;  // square of the linear warm-up
};

class Schedule {
 public:
  using Config = ScheduleConfig;

  // `run_steps`: the optimizer steps of the run, for a configuration that leaves total_steps to it.
  explicit Schedule(ScheduleConfig config, std::int64_t run_steps = 0) : config_(std::move(config)) {
    const auto* entry =
        std::find_if(shapes.begin(), shapes.end(), [&](const Shape& s) { return s.name == config_.name; });
    if (entry == shapes.end())
      core::raise_usage(
          "optim", 2,
          {.what = "there is no learning-rate schedule of that name", .found = config_.name, .expected = names()});
    require("min_ratio", config_.min_ratio, 1.0);
    require("constant_ratio", config_.constant_ratio, 1.0);
    require("warmup_steps", static_cast<double>(config_.warmup_steps), HUGE_VAL);
    require("total_steps", static_cast<double>(config_.total_steps), HUGE_VAL);
    factor_ = entry->factor;
    if (config_.total_steps == 0) config_.total_steps = run_steps;
    if (config_.total_steps == 0 && factor_ != &Schedule::constant)
      core::raise_usage("optim", 5,
                        {.what = "a learning-rate schedule that falls needs the number of steps it falls over",
                         .found = config_.name + " with total_steps 0, outside of a run",
                         .remedy = "set total_steps, or loop.max_steps of the trainer; or take \"constant\""});
    if (config_.name == "constant") config_.warmup_steps = 0;
  }

  // The learning rate of update `step` (0-based).
  [[nodiscard]] double operator()(std::int64_t step) const { return config_.learning_rate * factor(step); }

  // Rate / peak.
  [[nodiscard]] double factor(std::int64_t step) const {
    const std::int64_t w = config_.warmup_steps;
    if (step >= w) return (this->*factor_)(static_cast<double>(step));
    const double share = static_cast<double>(step) / static_cast<double>(std::max<std::int64_t>(1, w));
    return config_.quadratic_warmup ? share * share : share;
  }

  // "linear, cosine, …"
  [[nodiscard]] static std::string names() {
    std::string out;
    for (const Shape& s : shapes) out += (out.empty() ? "" : ", ") + std::string(s.name);
    return out;
  }

 private:
  struct Shape {
    std::string_view name;
    double (Schedule::*factor)(double) const;
  };

  [[nodiscard]] double linear(double t) const {
    const auto w = static_cast<double>(config_.warmup_steps), total = static_cast<double>(config_.total_steps);
    return std::max(0.0, (total - t) / std::max(1.0, total - w));
  }
  [[nodiscard]] double cosine(double t) const {
    const auto w = static_cast<double>(config_.warmup_steps);
    auto total = static_cast<double>(config_.total_steps);
    if (config_.constant_ratio > 0) total = std::floor(config_.constant_ratio * total);
    t = std::min(t, std::max(w, total));
    const double wave = 0.5 * (1.0 + std::cos(std::numbers::pi * (t - w) / std::max(1.0, total - w)));
    return std::max(0.0, (1.0 - config_.min_ratio) * wave + config_.min_ratio);
  }
  [[nodiscard]] double constant(double) const { return 1.0; }

  void require(const char* name, double value, double highest) const {
    if (value >= 0.0 && value <= highest) return;
    core::raise_usage("optim", 3,
                      {.what = std::string("a learning-rate schedule cannot have this ") + name,
                       .found = std::to_string(value),
                       .expected = highest == 1.0 ? "0 … 1" : "0 or more"});
  }

  static const std::array<Shape, 5> shapes;

  ScheduleConfig config_;
  double (Schedule::*factor_)(double) const = nullptr;
};

inline constexpr std::array<Schedule::Shape, 5> Schedule::shapes = {{{"linear", &Schedule::linear},
                                                                     {"cosine", &Schedule::cosine},
                                                                     {"cosine_with_min_lr", &Schedule::cosine},
                                                                     {"constant", &Schedule::constant},
                                                                     {"constant_with_warmup", &Schedule::constant}}};

}  // namespace rlalgo::optim
