// One stretch of memory for tensors that are read over and over: the weights of a model.
//
// Its pages are of 2 MiB where the kernel grants them (os/memory_stretch.hpp). Decoding reads all weights for every token, and small pages,
// above all those of a mapped file, give two thirds to half of the bandwidth of large ones (docs/performance.md).
//
// Tensors lie one behind the other in the order of take(), each from a cache line on, filled with zeros. A tensor that dies gives its pages
// back; the stretch is unmapped with the last one.
//
// Errors: [rlalgo.tensor.7] more is taken than was asked for; those of os/memory_stretch.hpp.
#pragma once

#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <rlalgo/os/memory_stretch.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

class LargePages {
 public:
  explicit LargePages(std::size_t bytes);

  // Of the stretch, for one tensor.
  [[nodiscard]] static std::size_t bytes_of(at::IntArrayRef shape, at::ScalarType dtype);

  // The next tensor, on the CPU.
  [[nodiscard]] Tensor take(at::IntArrayRef shape, at::ScalarType dtype);

 private:
  std::shared_ptr<const os::MemoryStretch> stretch_;
  std::size_t taken_ = 0;
};

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/large_pages_impl.hpp>
#endif
