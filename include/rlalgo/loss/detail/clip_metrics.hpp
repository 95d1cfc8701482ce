// clip_ratio/* from two indicators in the unit of the ratio. Exact under merge: means carry their weights, extremes are
// per completion.
#pragma once

#include <limits>

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss::detail {

// Mean of an indicator over the unit of the ratio: weighted by the mask for tokens, plain for rows.
inline void mean_metric(const char* name, const Tensor& value, const PolicyTerms& terms, Metrics& metrics) {
  if (terms.unit == Unit::row) {
    metrics.mean(name, value.sum(), terms.rows());
  } else {
    metrics.mean(name, value.mul(terms.scored.mask).sum(), terms.scored.mask.sum());
  }
}

// `low` and `high`: bool, like terms.ratio.
inline void clip_metrics(const Tensor& low, const Tensor& high, const PolicyTerms& terms, Metrics& metrics) {
  const auto dtype = terms.scored.mask.scalar_type();
  const Tensor is_low = low.to(dtype), is_high = high.to(dtype);
  mean_metric("clip_ratio/low_mean", is_low, terms, metrics);
  mean_metric("clip_ratio/high_mean", is_high, terms, metrics);
  mean_metric("clip_ratio/region_mean", is_low.maximum(is_high), terms, metrics);
  // Share of each completion; completions without loss tokens have none, and `infinity` stands in its place.
  const auto shares = [&](const Tensor& value, double infinity) {
    if (terms.unit == Unit::row) return value;
    const Tensor sums = tensor::row_sum(value.mul(terms.scored.mask), terms.scored.row, terms.rows());
    return sums.div(terms.scored.row_length).masked_fill(terms.scored.row_length.le(0), infinity);
  };
  constexpr double none = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  if (terms.rows() == 0) {
    metrics.minimum("clip_ratio/low_min", none);
    metrics.maximum("clip_ratio/high_max", none);
    return;
  }
  const Tensor least = shares(is_low, infinity).min(), most = shares(is_high, -infinity).max();
  metrics.minimum("clip_ratio/low_min", least.masked_fill(least.isinf(), none));
  metrics.maximum("clip_ratio/high_max", most.masked_fill(most.isinf(), none));
}

}  // namespace rlalgo::loss::detail
