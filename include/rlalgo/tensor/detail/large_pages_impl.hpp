// Definitions of large_pages.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <ATen/ops/from_blob.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/memory_stretch.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/large_pages.hpp>

namespace rlalgo::tensor {

RLALGO_INLINE LargePages::LargePages(std::size_t bytes) : stretch_(std::make_shared<const os::MemoryStretch>(bytes)) {}

RLALGO_INLINE std::size_t LargePages::bytes_of(at::IntArrayRef shape, at::ScalarType dtype) {
  constexpr std::size_t cache_line = 64;
  std::size_t bytes = c10::elementSize(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return (bytes + cache_line - 1) / cache_line * cache_line;
}

RLALGO_INLINE Tensor LargePages::take(at::IntArrayRef shape, at::ScalarType dtype) {
  const std::size_t bytes = bytes_of(shape, dtype);
  if (bytes > stretch_->size() - taken_)
    core::raise("tensor", 7,
                {.what = "more memory is taken than was asked for",
                 .found = std::to_string(taken_) + " and " + std::to_string(bytes) + " bytes",
                 .expected = "at most " + std::to_string(stretch_->size())});
  if (bytes == 0) return zeros(shape, at::TensorOptions().dtype(dtype));
  std::byte* const from = stretch_->begin() + taken_;
  taken_ += bytes;
  return at::from_blob(
      from, shape, [stretch = stretch_, from, bytes](void*) { os::release_pages(from, bytes); },
      at::TensorOptions().dtype(dtype));
}

}  // namespace rlalgo::tensor
