// Definitions of schedule.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/optim/schedule.hpp>

namespace rlalgo::optim {

RLALGO_INLINE Schedule::Schedule(ScheduleConfig config, std::int64_t run_steps) : config_(std::move(config)) {
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

RLALGO_INLINE double Schedule::factor(std::int64_t step) const {
  const std::int64_t w = config_.warmup_steps;
  if (step >= w) return (this->*factor_)(static_cast<double>(step));
  const double share = static_cast<double>(step) / static_cast<double>(std::max<std::int64_t>(1, w));
  return config_.quadratic_warmup ? share * share : share;
}

RLALGO_INLINE std::string Schedule::names() {
  std::string out;
  for (const Shape& s : shapes) out += (out.empty() ? "" : ", ") + std::string(s.name);
  return out;
}

RLALGO_INLINE double Schedule::linear(double t) const {
  const auto w = static_cast<double>(config_.warmup_steps), total = static_cast<double>(config_.total_steps);
  return std::max(0.0, (total - t) / std::max(1.0, total - w));
}

RLALGO_INLINE double Schedule::cosine(double t) const {
  const auto w = static_cast<double>(config_.warmup_steps);
  auto total = static_cast<double>(config_.total_steps);
  if (config_.constant_ratio > 0) total = std::floor(config_.constant_ratio * total);
  t = std::min(t, std::max(w, total));
  const double wave = 0.5 * (1.0 + std::cos(std::numbers::pi * (t - w) / std::max(1.0, total - w)));
  return std::max(0.0, (1.0 - config_.min_ratio) * wave + config_.min_ratio);
}

RLALGO_INLINE void Schedule::require(const char* name, double value, double highest) const {
  if (value >= 0.0 && value <= highest) return;
  core::raise_usage("optim", 3,
                    {.what = std::string("a learning-rate schedule cannot have this ") + name,
                     .found = std::to_string(value),
                     .expected = highest == 1.0 ? "0 … 1" : "0 or more"});
}

}  // namespace rlalgo::optim
