// Definitions of memory_peaks.hpp.
#pragma once

#include <cstddef>
#include <optional>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/tensor/detail/device_allocator.hpp>
#include <rlalgo/tensor/memory_peaks.hpp>

namespace rlalgo::tensor {

RLALGO_INLINE std::optional<MemoryPeaks> take_memory_peaks(at::Device device) {
  c10::DeviceAllocator* const allocator = detail::allocator_of(device);
  if (allocator == nullptr || !allocator->initialized()) return std::nullopt;
  const auto stats = allocator->getDeviceStats(device.index());
  allocator->resetPeakStats(device.index());
  constexpr auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return MemoryPeaks{.allocated = stats.allocated_bytes[all].peak,
                     .active = stats.active_bytes[all].peak,
                     .reserved = stats.reserved_bytes[all].peak};
}

}  // namespace rlalgo::tensor
