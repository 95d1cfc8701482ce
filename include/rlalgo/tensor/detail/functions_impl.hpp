// Definitions of functions.hpp.
#pragma once

#include <cstdint>
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

RLALGO_INLINE void put(Tensor x, const Tensor& first, const Tensor& second, const Tensor& values) {
  c10::List<std::optional<Tensor>> indices;
  indices.push_back(first);
  indices.push_back(second);
  x.index_put_(indices, values.to(x.scalar_type()));
}

}  // namespace rlalgo::tensor
