// The sum over tokens divided by a constant length per completion, so that length carries no weight.
//
//   Σ_{i,t} p m / (rows · L),   L = max_completion_length
//
// Source: Dr. GRPO (Liu et al., arXiv 2503.20783, listing 1); TRL's loss_type "dr_grpo".
#pragma once

#include <algorithm>
#include <cstdint>

#include <rlalgo/loss/policy_terms.hpp>
#include <rlalgo/loss/token_share.hpp>

namespace rlalgo::loss {

struct FixedLength {
  struct Config {
    std::int64_t max_completion_length = 512;  // L, tokens
  };

  static constexpr Hooks hooks{.token_share = true};
  static constexpr TokenShare token_share() { return TokenShare::rows; }

  FixedLength() = default;
  explicit FixedLength(Config config) : config_(config) {}

  Tensor operator()(const Tensor& per_token, const Scored& scored, const Counts& counts) const {
    const double length = static_cast<double>(std::max<std::int64_t>(config_.max_completion_length, 1));
    return per_token.mul(scored.mask).sum().div(std::max(counts.rows, 1.0) * length);
  }

 private:
  Config config_;
};

}  // namespace rlalgo::loss
