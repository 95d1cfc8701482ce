// One importance ratio per completion: the geometric mean of its tokens' ratios.
//
//   c_i = exp( Σ_t m (x − o) / max(n_i, 1) ),   n_i = Σ_t m
//
// Source: GSPO (Zheng et al., arXiv 2507.18071, eq. 7); TRL's importance_sampling_level "sequence". The gradient of c_i
// reaches every token with weight c_i/n_i. A row without loss tokens has ratio 1 and no gradient.
#pragma once

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct SequenceRatio {
  struct Config {};
  static constexpr Unit unit = Unit::row;

  SequenceRatio() = default;
  explicit SequenceRatio(Config) {}

  Tensor operator()(const Tensor& log_ratio, const Scored& scored) const {
    const Tensor total = tensor::row_sum(log_ratio, scored.row, scored.row_length.size(0));  // [R]
    return total.div(scored.row_length.clamp_min(1.0)).exp();
  }
};

}  // namespace rlalgo::loss
