// The mean over all tokens of the optimizer step: every token weighs the same.
//
//   Σ_{i,t} p m / max(M, 1),   M = Σ m over all micro-batches and ranks of the step
//
// Source: DAPO (Yu et al., arXiv 2503.14476, eq. 8); TRL's loss_type "dapo".
// Departure: before TRL 1.16 M counted the whole generation batch, which scales the gradient when a generation serves
// several steps; here, as there since, M is the step's own.
#pragma once

#include <algorithm>

#include <rlalgo/loss/policy_terms.hpp>
#include <rlalgo/loss/token_share.hpp>

namespace rlalgo::loss {

struct GlobalTokenCount {
  struct Config {};

  static constexpr Hooks hooks{.token_share = true};
  static constexpr TokenShare token_share() { return TokenShare::all; }

  GlobalTokenCount() = default;
  explicit GlobalTokenCount(Config) {}

  Tensor operator()(const Tensor& per_token, const Scored& scored, const Counts& counts) const {
    return per_token.mul(scored.mask).sum().div(std::max(counts.tokens, 1.0));
  }
};

}  // namespace rlalgo::loss
