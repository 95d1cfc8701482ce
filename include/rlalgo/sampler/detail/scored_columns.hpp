// The columns of loss::Scored that rows of every kind have.
#pragma once

#include <cstdint>
#include <vector>

#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::sampler::detail {

// mask and row [N], row_length [R], as loss::Scored says.
[[nodiscard]] inline loss::Scored scored_columns(const model::Scores& scores, const std::vector<double>& mask,
                                                 const std::vector<std::int64_t>& row,
                                                 const std::vector<double>& row_length) {
  const auto options = scores.log_prob.options().requires_grad(false);
  loss::Scored scored;
  scored.log_prob = scores.log_prob;
  scored.entropy = scores.entropy;
  scored.old_log_prob = scores.log_prob.detach();  // of the weights that compute the row, unless it brings its own
  scored.mask = tensor::from_values(mask, options);
  scored.row = tensor::from_values(row, options.dtype(at::kLong));
  scored.row_length = tensor::from_values(row_length, options);
  return scored;
}

}  // namespace rlalgo::sampler::detail
