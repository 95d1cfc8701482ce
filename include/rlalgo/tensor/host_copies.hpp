// Host values on a device, in one copy. To a GPU through pinned memory, so that the host does not wait for the device.
//
// Shapes: values [N]. LibTorch keeps pinned memory for later copies, and lets none be written to again before it was read.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include <c10/core/ScalarType.h>

#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

namespace detail {

template <class T>
Tensor staged(std::span<const T> values, bool pinned) {
  auto options = at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value);
  if (pinned) options = options.pinned_memory(true);
  const Tensor out = empty({static_cast<std::int64_t>(values.size())}, options);
  if (!values.empty()) std::memcpy(out.mutable_data_ptr(), values.data(), values.size_bytes());
  return out;
}

}  // namespace detail

// x ← values; x [N] of their dtype.
template <class T>
void copy_from_host(const Tensor& x, std::span<const T> values) {
  x.copy_(detail::staged(values, x.is_cuda()), /*non_blocking=*/x.is_cuda());
}

// A new tensor of them.
template <class T>
[[nodiscard]] Tensor on_device(std::span<const T> values, at::Device device) {
  return detail::staged(values, device.is_cuda()).to(device, /*non_blocking=*/device.is_cuda());
}

}  // namespace rlalgo::tensor
