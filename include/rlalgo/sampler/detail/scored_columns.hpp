// The columns of loss::Scored that rows of every kind have.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/host_block.hpp>

namespace rlalgo::sampler::detail {

// mask and row [N], row_length [R], as loss::Scored says: known before rows are scored.
[[nodiscard]] inline loss::Scored data_columns(const std::vector<double>& mask, const std::vector<std::int64_t>& row,
                                               const std::vector<double>& row_length, tensor::HostBlock& block) {
  loss::Scored scored;
  scored.mask = block.add_numbers(mask);
  scored.row = block.add(row);
  scored.row_length = block.add_numbers(row_length);
  return scored;
}

// These columns and what the policy said.
[[nodiscard]] inline loss::Scored with_scores(loss::Scored columns, const model::Scores& scores) {
  columns.log_prob = scores.log_prob;
  columns.entropy = scores.entropy;
  // Of the weights that compute the row, unless it brings its own.
  if (!columns.old_log_prob.defined()) columns.old_log_prob = scores.log_prob.detach();
  return columns;
}

// Of rows R whose columns were not prepared.
template <class R>
[[nodiscard]] loss::Scored collated(std::span<const typename R::Row* const> rows, const model::Scores& scores,
                                    const loss::Needs& needs) {
  tensor::HostBlock block(scores.log_prob.options());
  const typename R::Columns columns = R::columns(rows, needs, block);
  block.send();
  return R::collate(rows, scores, needs, columns);
}

}  // namespace rlalgo::sampler::detail
