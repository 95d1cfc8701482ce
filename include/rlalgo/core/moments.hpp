// Mean and sample standard deviation of a set that may contain NaN, exact on constant sets.
//
//   mean = p + Σ(x − p)/n          with the pivot p = min x, so equal values have exactly their value as mean
//   std₁ = sqrt(Σ(x − mean)²/(n − 1))   and exactly 0 as deviation, whatever rounding Σx would have had
//
// NaN entries are skipped and not counted. n ≤ 1: std₁ is NaN. An infinite entry makes the mean infinite (or NaN, when
// both signs occur) and std₁ NaN. Finite entries whose sum or squares double cannot hold are scaled first, exactly; a
// std₁ that double cannot hold is infinite.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace rlalgo::core {

struct Moments {
  double mean = std::numeric_limits<double>::quiet_NaN();
  double deviation = std::numeric_limits<double>::quiet_NaN();  // std₁
  std::size_t count = 0;                                        // entries that are not NaN
};

[[nodiscard]] inline Moments moments(std::span<const double> values) {
  constexpr double largest_plain = 0x1p+500;
  constexpr int scale = 600;
  Moments out;
  double pivot = std::numeric_limits<double>::infinity();
  double plain_sum = 0.0, largest = 0.0;
  for (const double x : values) {
    if (std::isnan(x)) continue;
    ++out.count;
    plain_sum += x;
    pivot = std::fmin(pivot, x);
    largest = std::fmax(largest, std::abs(x));
  }
  if (out.count == 0) return out;
  if (largest > largest_plain && std::isfinite(largest)) {
    std::vector<double> scaled(values.begin(), values.end());
    for (double& x : scaled) x = std::ldexp(x, -scale);
    out = moments(scaled);
    out.mean = std::ldexp(out.mean, scale);
    out.deviation = std::ldexp(out.deviation, scale);
    return out;
  }
  const auto n = static_cast<double>(out.count);
  if (!std::isfinite(plain_sum)) {
    out.mean = plain_sum / n;
    return out;
  }
  double sum = 0.0;
  for (const double x : values)
    if (!std::isnan(x)) sum += x - pivot;
  out.mean = pivot + sum / n;
  if (out.count == 1) return out;
  double squares = 0.0;
  for (const double x : values)
    if (!std::isnan(x)) squares += (x - out.mean) * (x - out.mean);
  out.deviation = std::sqrt(squares / (n - 1.0));
  return out;
}

// What an advantage is allowed to be: NaN becomes 0, ±inf becomes ± the largest float (losses compute in float32).
[[nodiscard]] inline double finite_advantage(double advantage) {
  constexpr double largest = std::numeric_limits<float>::max();
  if (std::isnan(advantage)) return 0.0;
  return std::fmin(std::fmax(advantage, -largest), largest);
}

}  // namespace rlalgo::core
