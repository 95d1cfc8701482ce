// The one-cycle schedule: the rate rises to the peak and falls to almost nothing, while Adam's β₁ does the opposite.
//
//   s = share of the rise, T = total steps, d = div_factor, f = final_div_factor; update t (0-based)
//   rise    t ≤ sT − 1        rate / peak  1/d → 1          β₁  max → base
//   fall    t ≤ T − 1                      1 → 1/(d·f)      β₁  base → max
//   three phases: rise, 1 → 1/d up to t = 2sT − 2 with β₁ base → max, then 1/d → 1/(d·f) with β₁ = max
//   within a phase at share x:  b + (a − b)(1 + cos πx)/2,  or straight a + (b − a)x
//
// Source: Smith & Topin, "Super-Convergence", arXiv 1708.07120; as torch.optim.lr_scheduler.OneCycleLR. A phase of no
// length is at its end, where torch divides by zero (sT = 1); after the last step its values stay. Host only.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <optional>

namespace rlalgo::optim {

struct OneCycleConfig {
  std::optional<double> rise_share{};  // of the steps; not set: warm-up steps / total steps
  bool straight = false;               // no cosine within a phase
  bool three_phases = false;
  bool cycle_momentum = true;  // moves the optimizer's β₁
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25.0;
  double final_div_factor = 1e4;
};

struct OneCyclePoint {
  double factor = 0.0;    // rate / peak
  double momentum = 0.0;  // β₁
};

[[nodiscard]] inline OneCyclePoint one_cycle(const OneCycleConfig& config, double rise_share, double total_steps,
                                             double step) {
  struct Phase {
    double end;  // the update at which it is over
    OneCyclePoint from, to;
  };
  const OneCyclePoint first{1.0 / config.div_factor, config.max_momentum}, peak{1.0, config.base_momentum};
  const OneCyclePoint last{first.factor / config.final_div_factor, config.max_momentum};
  const double rise = rise_share * total_steps - 1.0, end = total_steps - 1.0;
  const double back = 2.0 * rise_share * total_steps - 2.0;
  const std::array<Phase, 3> phases = {{{rise, first, peak},
                                        {config.three_phases ? back : end, peak, config.three_phases ? first : last},
                                        {end, first, last}}};
  const double t = std::min(step, end);
  const std::size_t count = config.three_phases ? 3 : 2;
  std::size_t i = 0;
  double begin = 0.0;
  for (; i + 1 < count && t > phases[i].end; ++i) begin = phases[i].end;
  const Phase& phase = phases[i];
  const double share = phase.end == begin ? 1.0 : (t - begin) / (phase.end - begin);
  const auto between = [&](double a, double b) {
    return config.straight ? a + (b - a) * share : b + (a - b) / 2.0 * (1.0 + std::cos(std::numbers::pi * share));
  };
  return {between(phase.from.factor, phase.to.factor), between(phase.from.momentum, phase.to.momentum)};
}

}  // namespace rlalgo::optim
