// The importance ratio of each token.
//
//   c_{i,t} = exp(x_{i,t} − o_{i,t})
//
// Source: PPO (Schulman et al., arXiv 1707.06347); TRL's importance_sampling_level "token".
#pragma once

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct TokenRatio {
  struct Config {};
  static constexpr Unit unit = Unit::token;

  TokenRatio() = default;
  explicit TokenRatio(Config) {}

  Tensor operator()(const Tensor& log_ratio, const Scored&) const { return log_ratio.exp(); }  // [N]
};

}  // namespace rlalgo::loss
