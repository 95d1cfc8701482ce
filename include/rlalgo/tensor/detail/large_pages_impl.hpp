// Definitions of large_pages.hpp.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include <ATen/ops/from_blob.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/large_pages.hpp>

namespace rlalgo::tensor {

struct LargePages::Stretch {
  static constexpr std::size_t large = std::size_t{2} << 20U;

  explicit Stretch(std::size_t bytes) : size(bytes), mapped(bytes + large) {
    memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      core::raise("tensor", 6,
                  {.what = "no memory for tensors",
                   .found = std::strerror(errno),
                   .expected = std::to_string(bytes) + " bytes",
                   .remedy = "use a smaller model or a machine with more memory"});
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    begin = static_cast<std::byte*>(memory) + (large - address % large) % large;
#ifdef MADV_HUGEPAGE
    if (bytes >= large) ::madvise(begin, bytes, MADV_HUGEPAGE);  // where it is refused pages stay small
#endif
  }
  Stretch(const Stretch&) = delete;
  Stretch& operator=(const Stretch&) = delete;
  ~Stretch() { ::munmap(memory, mapped); }

  // Gives the pages that lie inside [from, from + bytes) back.
  void release(const std::byte* from, std::size_t bytes) const {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const auto offset = static_cast<std::size_t>(from - begin);
    const std::size_t first = (offset + page - 1) / page * page, last = (offset + bytes) / page * page;
    if (first < last) ::madvise(begin + first, last - first, MADV_DONTNEED);
  }

  std::size_t size, mapped;
  void* memory;
  std::byte* begin;
};

RLALGO_INLINE LargePages::LargePages(std::size_t bytes) : stretch_(std::make_shared<const Stretch>(bytes)) {}

RLALGO_INLINE std::size_t LargePages::bytes_of(at::IntArrayRef shape, at::ScalarType dtype) {
  constexpr std::size_t cache_line = 64;
  std::size_t bytes = c10::elementSize(dtype);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::size_t>(extent);
  return (bytes + cache_line - 1) / cache_line * cache_line;
}

RLALGO_INLINE Tensor LargePages::take(at::IntArrayRef shape, at::ScalarType dtype) {
  const std::size_t bytes = bytes_of(shape, dtype);
  if (bytes > stretch_->size - taken_)
    core::raise("tensor", 7,
                {.what = "more memory is taken than was asked for",
                 .found = std::to_string(taken_) + " and " + std::to_string(bytes) + " bytes",
                 .expected = "at most " + std::to_string(stretch_->size)});
  if (bytes == 0) return zeros(shape, at::TensorOptions().dtype(dtype));
  std::byte* const from = stretch_->begin + taken_;
  taken_ += bytes;
  return at::from_blob(
      from, shape, [stretch = stretch_, from, bytes](void*) { stretch->release(from, bytes); },
      at::TensorOptions().dtype(dtype));
}

}  // namespace rlalgo::tensor
