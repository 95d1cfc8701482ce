// Definitions of functions.hpp.
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat_ops.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::tensor {

RLALGO_INLINE Tensor concatenate(const std::vector<Tensor>& tensors, std::int64_t dim) {
  return at::_ops::cat::call(tensors, dim);
}

namespace detail {

// The rows of memory from x [A, B, …] on, so wide that each x[a, b] is some of them, one behind the other.
struct MemoryRows {
  Tensor all;             // [rows, width], contiguous
  std::int64_t each = 0;  // rows of an x[a, b]
};
// Nothing to do so: each = 0.
inline MemoryRows memory_rows(const Tensor& x) {
  if (x.is_contiguous() || x.numel() == 0 || !x.select(0, 0).select(0, 0).is_contiguous()) return {};
  const std::int64_t elements = x.numel() / (x.size(0) * x.size(1)),
                     width = std::gcd(elements, std::gcd(x.stride(0), x.stride(1))),
                     memory = static_cast<std::int64_t>(x.storage().nbytes() / x.itemsize()) - x.storage_offset();
  return {x.as_strided({memory / width, width}, {width, 1}, x.storage_offset()), elements / width};
}

}  // namespace detail

// LibTorch's deterministic index_put_ on a GPU copies all of a destination that is not contiguous, and copies it back: a part of a large
// memory is written to as rows of that.
RLALGO_INLINE void put(Tensor x, const Tensor& first, const Tensor& second, const Tensor& values) {
  c10::List<std::optional<Tensor>> indices;
  const auto given = values.to(x.scalar_type());
  if (const detail::MemoryRows rows = detail::memory_rows(x); rows.each > 0) {
    const std::int64_t width = rows.all.size(1);
    const std::int64_t apart = x.stride(1) / width;
    Tensor at = (apart == 1 ? second : second.mul(apart)).add(first, x.stride(0) / width);
    if (rows.each > 1) at = at.unsqueeze(1).add(arange(0, rows.each, 1, at.options())).view({-1});
    indices.push_back(at);
    rows.all.index_put_(indices, given.reshape({-1, width}));
    return;
  }
  indices.push_back(first);
  indices.push_back(second);
  x.index_put_(indices, given);
}

}  // namespace rlalgo::tensor
