// Where pages of keys and values lie: the memory of the device that computes with them.
//
// This machine's: pages of 64 KiB or more lie side by side in stretches of 16 MiB or more, for which the kernel is asked for pages of 2 MiB
// (attention reads a few KiB of each of many pages, and finds them sooner). What is freed is given back to the system and its place used
// again; smaller pages come from the heap. Errors of allocate(): those of os/memory_stretch.hpp.
#pragma once

#include <cstddef>

namespace rlalgo::inference {

class PageMemory {
 public:
  virtual ~PageMemory() = default;
  virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void free(std::byte* page, std::size_t bytes) noexcept = 0;
  virtual void copy(const std::byte* from, std::byte* to, std::size_t bytes) = 0;

  // This machine's, from a cache line on; for any thread.
  static PageMemory& host();
};

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/page_memory_impl.hpp>
#endif
