// The mean over completions of their token sums: a completion weighs as much as it is long.
//
//   1/rows · Σ_i Σ_t p m      ( = 1/rows · Σ_i p_i n_i for a ratio per row )
//
// Source: LUSPO (Zheng et al., arXiv 2602.05261); TRL's loss_type "luspo", meant for SequenceRatio.
// Departure: as TRL since 1.16, which masks before it sums; earlier versions averaged over padding.
#pragma once

#include <algorithm>

#include <rlalgo/loss/policy_terms.hpp>
#include <rlalgo/loss/token_share.hpp>

namespace rlalgo::loss {

struct LengthWeighted {
  struct Config {};

  static constexpr Hooks hooks{.token_share = true};
  static constexpr TokenShare token_share() { return TokenShare::rows; }

  LengthWeighted() = default;
  explicit LengthWeighted(Config) {}

  Tensor operator()(const Tensor& per_token, const Scored& scored, const Counts& counts) const {
    return per_token.mul(scored.mask).sum().div(std::max(counts.rows, 1.0));
  }
};

}  // namespace rlalgo::loss
