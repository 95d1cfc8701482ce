// The importance ratio of a whole completion: the product of its tokens' ratios, without length normalisation.
//
//   c_i = exp( Σ_t m (x − o) )
//
// Source: RLOO (Ahmadian et al., arXiv 2402.14740) as TRL implements it: ClippedRatio over this with RowMean.
#pragma once

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct CompletionRatio {
  struct Config {};
  static constexpr Unit unit = Unit::row;

  CompletionRatio() = default;
  explicit CompletionRatio(Config) {}

  Tensor operator()(const Tensor& log_ratio, const Scored& scored) const {
    return tensor::row_sum(log_ratio, scored.row, scored.row_length.size(0)).exp();  // [R]
  }
};

}  // namespace rlalgo::loss
