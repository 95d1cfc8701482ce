// The mean over completions of what each of them gives as a whole.
//
//   1/rows · Σ_i p_i,   rows = completions of the optimizer step, all micro-batches and ranks
//
// For losses with one value per completion (CompletionRatio), which all of its tokens carry: p_i is the mean over them,
// loss tokens or not. So a completion without loss tokens (`mask_truncated_completions`) gives p_i of the ratio 1, a
// constant: no gradient, but the sum of a group's advantages stays 0. A completion without tokens gives 0.
//
// Source: RLOO (Ahmadian et al., arXiv 2402.14740, eq. 7) as TRL's RLOOTrainer averages it.
#pragma once

#include <algorithm>

#include <rlalgo/loss/policy_terms.hpp>
#include <rlalgo/loss/token_share.hpp>

namespace rlalgo::loss {

struct RowMean {
  struct Config {};

  static constexpr Hooks hooks{.token_share = true};
  static constexpr TokenShare token_share() { return TokenShare::rows; }

  RowMean() = default;
  explicit RowMean(Config) {}

  Tensor operator()(const Tensor& per_token, const Scored& scored, const Counts& counts) const {
    const Tensor tokens =
        tensor::row_sum(scored.mask.new_ones(scored.mask.sizes()), scored.row, scored.row_length.size(0));
    return per_token.div(tensor::spread(tokens, scored.row)).sum().div(std::max(counts.rows, 1.0));
  }
};

}  // namespace rlalgo::loss
