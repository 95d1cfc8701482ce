// Warm-up, a plateau at the peak, decay: "WSD".
//
//   w = warm-up, s = stable, d = decay steps; m = minimum ratio, c = waves of the decay; update t (0-based)
//   t < w              m + (1 − m)·up(t/w),          up(x)   = x,  ½(1 − cos πx),  1 − √(1 − x)
//   t < w + s          1
//   t < w + s + d      m + (1 − m)·down((t − w − s)/d),   down(x) = 1 − x,  ½(1 + cos 2πcx),  1 − √x
//   after that         m
//
// Source: Hu et al., "MiniCPM", arXiv 2404.06395, section 4; as transformers' warmup_stable_decay. Host only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>

namespace rlalgo::optim {

struct StableDecayConfig {
  enum class Shape { linear, cosine, one_minus_sqrt };
  std::int64_t decay_steps = 0;
  std::optional<std::int64_t> stable_steps{};  // not set: what warm-up and decay leave of all steps
  Shape warmup = Shape::linear;
  Shape decay = Shape::cosine;
};

struct StableDecayPhases {
  double warmup = 0.0, stable = 0.0, decay = 0.0;  // steps
};

// Rate / peak.
[[nodiscard]] inline double stable_decay(const StableDecayConfig& config, const StableDecayPhases& phases,
                                         double min_ratio, double cycles, double step) {
  using Shape = StableDecayConfig::Shape;
  const auto above = [&](double share) { return std::max(0.0, share * (1.0 - min_ratio) + min_ratio); };
  if (step < phases.warmup) {
    const double x = step / std::max(1.0, phases.warmup);
    if (config.warmup == Shape::cosine) return above(0.5 * (1.0 - std::cos(std::numbers::pi * x)));
    return above(config.warmup == Shape::linear ? x : 1.0 - std::sqrt(1.0 - x));
  }
  if (step < phases.warmup + phases.stable) return 1.0;
  if (step >= phases.warmup + phases.stable + phases.decay) return min_ratio;
  const double x = (step - phases.warmup - phases.stable) / std::max(1.0, phases.decay);
  if (config.decay == Shape::cosine) return above(0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * x)));
  return above(config.decay == Shape::linear ? 1.0 - x : 1.0 - std::sqrt(x));
}

}  // namespace rlalgo::optim
