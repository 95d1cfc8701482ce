// clip_ratio/* from two indicators in the unit of the ratio. Exact under merge: means carry their weights, extremes are
// per completion.
#pragma once

#include <limits>

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss::detail {

// Mean of an indicator over the unit of the ratio: weighted by the mask for tokens, plain for rows.
inline void mean_metric(const char* name, const Tensor& value, const PolicyTerms& terms, core::Metrics& metrics) {
  if (terms.unit == Unit::row) {
    metrics.mean(name, value.sum().item<double>(), static_cast<double>(terms.rows()));
  } else {
    metrics.mean(name, value.mul(terms.scored.mask).sum().item<double>(), terms.scored.mask.sum().item<double>());
  }
}

// `low` and `high`: bool, like terms.ratio.
inline void clip_metrics(const Tensor& low, const Tensor& high, const PolicyTerms& terms, core::Metrics& metrics) {
  const auto dtype = terms.scored.mask.scalar_type();
  const Tensor is_low = low.to(dtype), is_high = high.to(dtype);
  mean_metric("clip_ratio/low_mean", is_low, terms, metrics);
  mean_metric("clip_ratio/high_mean", is_high, terms, metrics);
  mean_metric("clip_ratio/region_mean", is_low.maximum(is_high), terms, metrics);
  // Share of each completion; completions without loss tokens have none.
  const auto shares = [&](const Tensor& value) {
    if (terms.unit == Unit::row) return value;
    const Tensor counted = terms.scored.row_length.gt(0).nonzero().squeeze(1);
    const Tensor sums = tensor::row_sum(value.mul(terms.scored.mask), terms.scored.row, terms.rows());
    return sums.div(terms.scored.row_length).index_select(0, counted);
  };
  const Tensor low_shares = shares(is_low), high_shares = shares(is_high);
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  metrics.minimum("clip_ratio/low_min", low_shares.numel() == 0 ? none : low_shares.min().item<double>());
  metrics.maximum("clip_ratio/high_max", high_shares.numel() == 0 ? none : high_shares.max().item<double>());
}

}  // namespace rlalgo::loss::detail
