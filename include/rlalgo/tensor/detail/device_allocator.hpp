// LibTorch's allocator of a device that says how much there is.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

namespace rlalgo::tensor::detail {

// Null: it has none.
inline c10::DeviceAllocator* allocator_of(at::Device device) {
  if (!device.is_cuda() && !device.is_privateuseone()) return nullptr;
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
}

}  // namespace rlalgo::tensor::detail
