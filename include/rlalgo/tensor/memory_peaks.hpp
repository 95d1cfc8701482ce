// How much of a device's memory this process took at most, by LibTorch's own count.
#pragma once

#include <cstdint>
#include <optional>

#include <c10/core/Device.h>

namespace rlalgo::tensor {

// Bytes, each the most since the last call.
struct MemoryPeaks {
  std::int64_t allocated = 0;  // by tensors
  std::int64_t active = 0;     // by these, and by freed ones that a stream still reads
  std::int64_t reserved = 0;   // of the device, with what is kept for the next tensors
};
// Begins to count anew. Nothing: the memory of the device is not LibTorch's to count, as a CPU's.
[[nodiscard]] std::optional<MemoryPeaks> take_memory_peaks(at::Device device);

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/memory_peaks_impl.hpp>
#endif
