// Definitions of schedule.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/optim/one_cycle.hpp>
#include <rlalgo/optim/plateau.hpp>
#include <rlalgo/optim/schedule.hpp>
#include <rlalgo/optim/stable_decay.hpp>

namespace rlalgo::optim {

RLALGO_INLINE Schedule::Schedule(ScheduleConfig config, std::int64_t run_steps) : config_(std::move(config)) {
  const auto* entry =
      std::find_if(shapes.begin(), shapes.end(), [&](const Shape& s) { return s.name == config_.name; });
  if (entry == shapes.end())
    core::raise_usage(
        "optim", 2,
        {.what = "there is no learning-rate schedule of that name", .found = config_.name, .expected = names()});
  factor_ = entry->factor;
  warmup_ = entry->warmup;
  if (config_.total_steps == 0) config_.total_steps = run_steps;
  check();
  if (config_.total_steps == 0 && !entry->endless)
    core::raise_usage("optim", 5,
                      {.what = "a learning-rate schedule that falls needs the number of steps it falls over",
                       .found = config_.name + " with total_steps 0, outside of a run",
                       .remedy = "set total_steps, or loop.max_steps of the trainer; or take \"constant\""});
  plateau_.rate = config_.learning_rate;
}

RLALGO_INLINE double Schedule::factor(std::int64_t step) const {
  const std::int64_t w = config_.warmup_steps;
  if (warmup_ == Warmup::own || step >= w) return (this->*factor_)(static_cast<double>(step));
  const double share = static_cast<double>(step) / static_cast<double>(std::max<std::int64_t>(1, w));
  return config_.quadratic_warmup ? share * share : share;
}

RLALGO_INLINE std::optional<double> Schedule::momentum(std::int64_t step) const {
  if (!moves_momentum()) return std::nullopt;
  return cycle_at(static_cast<double>(step)).momentum;
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
  const double turns = config_.cycles.value_or(0.5) * 2.0;
  const double wave = 0.5 * (1.0 + std::cos(std::numbers::pi * turns * (t - w) / std::max(1.0, total - w)));
  return std::max(0.0, (1.0 - config_.min_ratio) * wave + config_.min_ratio);
}

RLALGO_INLINE double Schedule::restarts(double t) const {
  const auto w = static_cast<double>(config_.warmup_steps), total = static_cast<double>(config_.total_steps);
  const double p = (t - w) / std::max(1.0, total - w);
  if (p >= 1.0) return 0.0;
  return 0.5 * (1.0 + std::cos(std::numbers::pi * std::fmod(config_.cycles.value_or(1.0) * p, 1.0)));
}

RLALGO_INLINE double Schedule::warmed_cosine(double t) const {
  const auto w = static_cast<double>(config_.warmup_steps), total = static_cast<double>(config_.total_steps);
  if (t < w) {
    if (!config_.first_ratio) return (t + 1.0) / std::max(1.0, w);
    return *config_.first_ratio + (1.0 - *config_.first_ratio) * t / std::max(1.0, w - 1.0);
  }
  const double p = (t - w + 1.0) / std::max(1.0, total - w);
  const double wave = 0.5 * (1.0 + std::cos(std::numbers::pi * config_.cycles.value_or(0.5) * 2.0 * p));
  return std::max(0.0, (1.0 - config_.min_ratio) * wave + config_.min_ratio);
}

RLALGO_INLINE double Schedule::polynomial(double t) const {
  const auto w = static_cast<double>(config_.warmup_steps), total = static_cast<double>(config_.total_steps);
  if (t >= total) return config_.min_ratio;
  return (1.0 - config_.min_ratio) * std::pow(1.0 - (t - w) / (total - w), config_.power) + config_.min_ratio;
}

RLALGO_INLINE double Schedule::inverse_sqrt(double t) const {
  const auto w = static_cast<double>(config_.warmup_steps);
  const double timescale = config_.timescale > 0 ? static_cast<double>(config_.timescale) : w > 0 ? w : 10'000.0;
  return 1.0 / std::sqrt((t - w + timescale) / timescale);
}

RLALGO_INLINE double Schedule::rex(double t) const {
  const auto w = static_cast<double>(config_.warmup_steps), total = static_cast<double>(config_.total_steps);
  const double u = t + 1.0;
  if (u <= w) return u / w;
  if (u >= total) return config_.min_ratio;
  const double z = (total - u) / (total - w);
  return config_.min_ratio + (1.0 - config_.min_ratio) * (z / (0.1 + 0.9 * z));
}

RLALGO_INLINE StableDecayPhases Schedule::phases() const {
  const StableDecayConfig& wsd = config_.stable_decay;
  const std::int64_t stable = wsd.stable_steps.value_or(config_.total_steps - config_.warmup_steps - wsd.decay_steps);
  return {static_cast<double>(config_.warmup_steps), static_cast<double>(stable), static_cast<double>(wsd.decay_steps)};
}

RLALGO_INLINE double Schedule::wsd(double t) const {
  return stable_decay(config_.stable_decay, phases(), config_.min_ratio, config_.cycles.value_or(0.5), t);
}

RLALGO_INLINE OneCyclePoint Schedule::cycle_at(double t) const {
  const auto total = static_cast<double>(config_.total_steps);
  return one_cycle(config_.one_cycle,
                   config_.one_cycle.rise_share.value_or(static_cast<double>(config_.warmup_steps) / total), total, t);
}

RLALGO_INLINE double Schedule::cycle(double t) const { return cycle_at(t).factor; }

RLALGO_INLINE void Schedule::check() const {
  const ScheduleConfig& c = config_;
  const auto share = [&](const char* name, double value) { require(name, value, value >= 0 && value <= 1, "0 … 1"); };
  const auto count = [&](const char* name, std::int64_t value) {
    require(name, static_cast<double>(value), value >= 0, "0 or more");
  };
  const auto positive = [&](const char* name, double value) {
    require(name, value, value > 0 && std::isfinite(value), "above 0");
  };
  share("min_ratio", c.min_ratio);
  share("constant_ratio", c.constant_ratio);
  count("warmup_steps", c.warmup_steps);
  count("total_steps", c.total_steps);
  if (c.cycles) positive("cycles", *c.cycles);
  if (c.first_ratio) share("first_ratio", *c.first_ratio);
  positive("power", c.power);
  count("timescale", c.timescale);
  if (c.one_cycle.rise_share) share("one_cycle.rise_share", *c.one_cycle.rise_share);
  positive("one_cycle.div_factor", c.one_cycle.div_factor);
  positive("one_cycle.final_div_factor", c.one_cycle.final_div_factor);
  const auto momentum = [&](const char* name, double value) { require(name, value, value >= 0 && value < 1, "0 … 1"); };
  momentum("one_cycle.base_momentum", c.one_cycle.base_momentum);
  momentum("one_cycle.max_momentum", c.one_cycle.max_momentum);
  require("plateau.factor", c.plateau.factor, c.plateau.factor >= 0 && c.plateau.factor < 1, "0 … 1");
  count("plateau.patience", c.plateau.patience);
  count("plateau.cooldown", c.plateau.cooldown);
  for (const double value : {c.plateau.threshold, c.plateau.min_rate, c.plateau.epsilon})
    require("plateau.threshold, min_rate or epsilon", value, value >= 0 && std::isfinite(value), "0 or more");
  if (factor_ == &Schedule::cycle && !c.one_cycle.rise_share && c.total_steps > 0)
    require("warmup_steps", static_cast<double>(c.warmup_steps), c.warmup_steps <= c.total_steps,
            "at most all steps: it is the rise of one_cycle");
  if (factor_ != &Schedule::wsd) return;
  count("stable_decay.decay_steps", c.stable_decay.decay_steps);
  if (c.stable_decay.stable_steps) count("stable_decay.stable_steps", *c.stable_decay.stable_steps);
  const std::int64_t all = c.warmup_steps + c.stable_decay.stable_steps.value_or(0) + c.stable_decay.decay_steps;
  if (c.stable_decay.decay_steps > 0 && (c.total_steps == 0 || all <= c.total_steps)) return;
  core::raise_usage(
      "optim", 6,
      {.what = c.stable_decay.decay_steps == 0 ? "warmup_stable_decay has no decay"
                                               : "the phases of warmup_stable_decay are longer than the run",
       .found = std::to_string(c.warmup_steps) + " + " + std::to_string(c.stable_decay.stable_steps.value_or(0)) +
                " + " + std::to_string(c.stable_decay.decay_steps) + " steps of warm-up, stable rate and decay",
       .expected = "a decay, and at most " + std::to_string(c.total_steps) + " in all",
       .remedy = "set num_decay_steps, or fewer warm-up or stable steps"});
}

RLALGO_INLINE void Schedule::require(const char* name, double value, bool holds, const char* expected) const {
  if (holds) return;
  core::raise_usage("optim", 3,
                    {.what = std::string("a learning-rate schedule cannot have this ") + name,
                     .found = std::to_string(value),
                     .expected = expected});
}

}  // namespace rlalgo::optim
