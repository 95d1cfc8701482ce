// A rate that is lowered whenever a metric of the evaluations has stopped improving.
//
//   v better than best:  relative  v < best·(1 − threshold),  absolute  v < best − threshold;  of a metric that is to
//                        grow  v > best·(1 + threshold),  v > best + threshold. The first value is better than none
//   better               best ← v, bad ← 0;    otherwise  bad ← bad + 1
//   in a cooldown        cooldown ← cooldown − 1, bad ← 0
//   bad > patience       rate ← max(rate·factor, min_rate) where that lowers it by more than epsilon;
//                        cooldown starts, bad ← 0
//
// Source: torch.optim.lr_scheduler.ReduceLROnPlateau. Here only a finite value can be better. The state goes into
// checkpoints: what the rate is depends on all evaluations before. Host only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace rlalgo::optim {

struct PlateauConfig {
  bool grows = false;  // the metric is to grow (a reward), not to fall (a loss)
  double factor = 0.1;
  std::int64_t patience = 10;  // evaluations without improvement that are borne
  double threshold = 1e-4;
  bool absolute = false;      // the threshold is a difference, not a share
  std::int64_t cooldown = 0;  // evaluations after a reduction that count for nothing
  double min_rate = 0.0;
  double epsilon = 1e-8;  // smaller reductions are left out
};

struct PlateauState {
  double rate = 0.0;
  std::optional<double> best;
  std::int64_t bad = 0;
  std::int64_t cooldown = 0;
  friend bool operator==(const PlateauState&, const PlateauState&) = default;
};

// The state after an evaluation that gave `value`.
[[nodiscard]] inline PlateauState after_evaluation(const PlateauConfig& config, PlateauState state, double value) {
  const auto better = [&](double best) {
    if (!std::isfinite(value)) return false;
    if (config.grows) return value > (config.absolute ? best + config.threshold : best * (1.0 + config.threshold));
    return value < (config.absolute ? best - config.threshold : best * (1.0 - config.threshold));
  };
  const double worst = config.grows ? -HUGE_VAL : HUGE_VAL;
  if (better(state.best.value_or(worst))) {
    state.best = value;
    state.bad = 0;
  } else {
    ++state.bad;
  }
  if (state.cooldown > 0) {
    --state.cooldown;
    state.bad = 0;
  }
  if (state.bad <= config.patience) return state;
  const double lower = std::max(state.rate * config.factor, config.min_rate);
  if (state.rate - lower > config.epsilon) state.rate = lower;
  state.cooldown = config.cooldown;
  state.bad = 0;
  return state;
}

}  // namespace rlalgo::optim
