// GSPO-token: the sequence ratio in value, with the gradient of each token's own log-prob.
//
//   c_{i,t} = exp( x − sg(x) + sg( Σ_t m (x − o) / max(n_i, 1) ) )
//
// Source: GSPO (Zheng et al., arXiv 2507.18071, eq. 14); TRL's experimental gspo_token. With one advantage per row its
// gradient equals that of SequenceRatio; clip metrics are per token.
#pragma once

#include <rlalgo/loss/policy_terms.hpp>

namespace rlalgo::loss {

struct SequenceTokenRatio {
  struct Config {};
  static constexpr Unit unit = Unit::token;

  SequenceTokenRatio() = default;
  explicit SequenceTokenRatio(Config) {}

  Tensor operator()(const Tensor& log_ratio, const Scored& scored) const {
    const Tensor fixed = log_ratio.detach();
    const Tensor mean =
        tensor::row_sum(fixed, scored.row, scored.row_length.size(0)).div(scored.row_length.clamp_min(1.0));
    return log_ratio.sub(fixed).add(tensor::spread(mean, scored.row)).exp();  // [N]
  }
};

}  // namespace rlalgo::loss
