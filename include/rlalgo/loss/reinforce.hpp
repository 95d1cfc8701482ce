// REINFORCE: the score function, without a ratio.
//
//   p = −A·x
//
// Source: Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning" (1992).
// On-policy only: data of an older policy are not corrected. The value is a score function: only its gradient means
// something. No metrics of its own.
#pragma once

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct Reinforce {
  struct Config {};
  static constexpr Hooks hooks{.ignores_ratio = true};

  Reinforce() = default;
  explicit Reinforce(Config) {}

  Tensor operator()(const PolicyTerms& terms, Metrics&) const {
    return terms.token_advantage.mul(terms.log_prob).neg();  // [N]
  }
};

}  // namespace rlalgo::loss
