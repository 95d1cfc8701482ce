// What losses share: sums over the tokens of each row, values spread from rows to tokens, and masking that nothing
// leaks through.
//
// Shapes: values and mask [N], row [N] int64 in 0 … R−1, per-row tensors [R].
#pragma once

#include <cstdint>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

// `values` where mask ≠ 0, exactly 0 elsewhere: whatever a masked position holds (NaN, ∞), neither its value nor its
// gradient passes.
inline Tensor masked(const Tensor& values, const Tensor& mask) { return values.masked_fill(mask.eq(0), 0.0); }

// Σ over the tokens of each row → [R]. Rows without tokens are 0.
inline Tensor row_sum(const Tensor& values, const Tensor& row, std::int64_t rows) {
  return values.new_zeros({rows}).index_add(0, row, values);
}

// The value of its row for each token → [N].
inline Tensor spread(const Tensor& per_row, const Tensor& row) { return per_row.index_select(0, row); }

}  // namespace rlalgo::tensor
