// The mean over the tokens of each micro-batch, averaged over micro-batches.
//
//   1/micro_batches · Σ_{i,t} p m / max(Σ_{i in this micro-batch} n_i, 1)
//
// Source: TRL's loss_type "bnpo". The only reduction that depends on how the step is split into micro-batches: its
// denominator is, by definition, the token count of the micro-batch. GlobalTokenCount is the same mean without that.
#pragma once

#include <algorithm>

#include <rlalgo/loss/policy_terms.hpp>
#include <rlalgo/loss/token_share.hpp>

namespace rlalgo::loss {

struct TokenMean {
  struct Config {};

  static constexpr Hooks hooks{.token_share = true};
  static constexpr TokenShare token_share() { return TokenShare::none; }

  TokenMean() = default;
  explicit TokenMean(Config) {}

  Tensor operator()(const Tensor& per_token, const Scored& scored, const Counts& counts) const {
    const Tensor tokens = scored.mask.sum().clamp_min(1.0);
    return per_token.mul(scored.mask).sum().div(tokens).div(std::max(counts.micro_batches, 1.0));
  }
};

}  // namespace rlalgo::loss
