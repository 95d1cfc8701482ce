// The mean over completions of each completion's token mean.
//
//   1/rows · Σ_i [ Σ_t p m / max(n_i, 1) ],   rows = completions of the optimizer step, all micro-batches and ranks
//
// Source: GRPO (Shao et al., arXiv 2402.03300, eq. 3); TRL's loss_type "grpo" (its 1/B and 1/accumulation in one).
// A completion without loss tokens contributes 0 and counts as a row.
#pragma once

#include <algorithm>

#include <rlalgo/loss/policy_terms.hpp>
#include <rlalgo/loss/token_share.hpp>

namespace rlalgo::loss {

struct SequenceMean {
  struct Config {};

  static constexpr Hooks hooks{.token_share = true};
  static constexpr TokenShare token_share() { return TokenShare::rows; }

  SequenceMean() = default;
  explicit SequenceMean(Config) {}

  Tensor operator()(const Tensor& per_token, const Scored& scored, const Counts& counts) const {
    const Tensor weight = scored.mask.div(tensor::spread(scored.row_length.clamp_min(1.0), scored.row));  // [N]
    return per_token.mul(weight).sum().div(std::max(counts.rows, 1.0));
  }
};

}  // namespace rlalgo::loss
