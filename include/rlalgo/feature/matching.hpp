// How well the samples of a group match the ground truth, and how alike they are: the rewards of energy-based
// fine-tuning.
//
//   alignment_j = 2·cos(φ_j, φ_y)            diversity_j = 2/(n − 1)·Σ_{i≠j} φ_j·φ_i
//   reward_j = c_al·alignment_j − c_dv·diversity_j         mismatch = ‖mean_j φ_j − φ_y‖²
//
// Source: "Energy-based fine-tuning", arXiv 2603.12248, eq. 7: the score-function gradient of the conditional
// feature-matching loss, both terms with its factor 2; eq. 8 and 9 with whitened features (whitening.hpp).
// Shapes: a group of n samples → [n]; one sample has no diversity. Norms below 1e-8 count as 1e-8, so features of 0
// have alignment 0. Under sample-space whitening every sample has a ground truth of its own length, w_j·φ_y, and
// mismatch is that of the means (docs/algorithms/ebft.md).
// Samples with the same features have the same rewards to the bit, up to the rounding of the eigenvectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <rlalgo/feature/gram.hpp>
#include <rlalgo/feature/whitening.hpp>

namespace rlalgo::feature {

struct Matching {
  std::vector<double> alignment;  // [n] in [−2, 2]
  std::vector<double> diversity;  // [n]
  double mismatch = 0.0;          // the loss itself: cfm
};

struct MatchingConfig {
  Whitening whitening = Whitening::none;
  double tolerance = 1e-5;  // of singular values, relative to the largest
};

namespace detail {

[[nodiscard]] inline double cosine(double product, double squared, double other_norm) {
  constexpr double least = 1e-8;
  return product / (std::max(std::sqrt(std::max(squared, 0.0)), least) * std::max(other_norm, least));
}

[[nodiscard]] inline double sum(const std::vector<double>& values) {
  double out = 0.0;
  for (const double value : values) out += value;
  return out;
}

[[nodiscard]] inline std::vector<double> diversity(const std::vector<double>& among, std::size_t n) {
  std::vector<double> out(n, 0.0);
  if (n < 2) return out;
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < n; ++i)
      if (i != j) out[j] += among[j * n + i];
    out[j] *= 2.0 / static_cast<double>(n - 1);
  }
  return out;
}

}  // namespace detail

[[nodiscard]] inline Matching match(const Gram& gram, const MatchingConfig& config = {}) {
  const std::size_t n = gram.samples;
  const auto count = static_cast<double>(n);
  Matching out;
  out.alignment.resize(n);
  if (config.whitening == Whitening::none) {
    for (std::size_t j = 0; j < n; ++j)
      out.alignment[j] = 2.0 * detail::cosine(gram.with_truth[j], gram.among[j * n + j], std::sqrt(gram.truth));
    out.diversity = detail::diversity(gram.among, n);
    if (n > 0)
      out.mismatch =
          detail::sum(gram.among) / (count * count) - 2.0 / count * detail::sum(gram.with_truth) + gram.truth;
    return out;
  }
  const Whitened white = whiten(gram, config.tolerance);
  const bool by_feature = config.whitening == Whitening::feature;
  const double norm = by_feature ? std::sqrt(detail::dot(white.truth, white.truth)) : std::sqrt(gram.truth);
  for (std::size_t j = 0; j < n; ++j) {
    const double sign = white.mixed[j] > 0.0 ? 1.0 : white.mixed[j] < 0.0 ? -1.0 : 0.0;
    const double product = by_feature ? white.truth[j] : sign * white.half[j];
    out.alignment[j] = 2.0 * detail::cosine(product, white.among[j * n + j], norm);
  }
  out.diversity = detail::diversity(white.among, n);
  if (n == 0) return out;
  const double spread = detail::sum(white.among) / (count * count);
  if (by_feature) {
    out.mismatch = spread - 2.0 / count * detail::sum(white.truth) + norm * norm;
  } else {
    const double scale = detail::sum(white.mixed) / count;
    out.mismatch = spread - 2.0 * scale * detail::sum(white.half) / count + scale * scale * gram.truth;
  }
  return out;
}

}  // namespace rlalgo::feature
