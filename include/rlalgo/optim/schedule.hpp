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

#include <array>
#include <cstdint>
#include <numbers>
#include <string>
#include <string_view>

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
  explicit Schedule(ScheduleConfig config, std::int64_t run_steps = 0);

  // The learning rate of update `step` (0-based).
  [[nodiscard]] double operator()(std::int64_t step) const { return config_.learning_rate * factor(step); }

  // Rate / peak.
  [[nodiscard]] double factor(std::int64_t step) const;

  // "linear, cosine, …"
  [[nodiscard]] static std::string names();

 private:
  struct Shape {
    std::string_view name;
    double (Schedule::*factor)(double) const;
  };

  [[nodiscard]] double linear(double t) const;
  [[nodiscard]] double cosine(double t) const;
  [[nodiscard]] double constant(double) const { return 1.0; }

  void require(const char* name, double value, double highest) const;

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

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/schedule_impl.hpp>
#endif
