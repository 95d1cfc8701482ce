// The inner products of the features of n samples and of one ground truth: all that rewards need of the features.
//
//   G_ij = φ_i·φ_j,   b_i = φ_i·φ_y,   t = ‖φ_y‖²
//
// Shapes: features [n][D] and [D]; G [n, n] row-major, b [n]. D appears nowhere after this: no D×D matrix exists.
// Sums are in double precision, in an order of their own that is the same on every machine; equal features give equal
// products to the bit.
// Errors: [rlalgo.feature.1] features of different lengths; [rlalgo.feature.2] a feature that is not finite.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>

namespace rlalgo::feature {

struct Gram {
  std::size_t samples = 0;         // n
  std::vector<double> among;       // [n, n] G
  std::vector<double> with_truth;  // [n] b
  double truth = 0.0;              // t
};

namespace detail {

// Four partial sums: their order does not depend on the width of a machine's vectors.
[[nodiscard]] inline double dot(std::span<const double> a, std::span<const double> b) {
  double sums[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= a.size(); i += 4)
    for (std::size_t k = 0; k < 4; ++k) sums[k] += a[i + k] * b[i + k];
  for (; i < a.size(); ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

inline void check(std::span<const double> features, std::size_t length, const std::string& what) {
  if (features.size() != length)
    core::raise("feature", 1,
                {.what = "features of different lengths cannot be compared",
                 .found = std::to_string(features.size()) + " numbers",
                 .expected = std::to_string(length) + ", as the ground truth has",
                 .where = what});
  for (const double value : features)
    if (!std::isfinite(value))
      core::raise(
          "feature", 2,
          {.what = "a feature is not finite",
           .found = std::isnan(value) ? "NaN" : "infinity",
           .where = what,
           .remedy = "check the weights of the feature network; with 16-bit weights an activation may overflow"});
}

}  // namespace detail

[[nodiscard]] inline Gram gram(std::span<const std::vector<double>> samples, std::span<const double> truth) {
  const std::size_t n = samples.size();
  detail::check(truth, truth.size(), "ground truth");
  for (std::size_t i = 0; i < n; ++i) detail::check(samples[i], truth.size(), "sample " + std::to_string(i));
  Gram out{.samples = n,
           .among = std::vector<double>(n * n),
           .with_truth = std::vector<double>(n),
           .truth = detail::dot(truth, truth)};
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = i; j < n; ++j)
      out.among[i * n + j] = out.among[j * n + i] = detail::dot(samples[i], samples[j]);
    out.with_truth[i] = detail::dot(samples[i], truth);
  }
  return out;
}

}  // namespace rlalgo::feature
