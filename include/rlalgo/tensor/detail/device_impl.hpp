// Definitions of device.hpp.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/cuda_library.hpp>
#include <rlalgo/tensor/detail/device_allocator.hpp>
#include <rlalgo/tensor/detail/numbered_gpu.hpp>
#include <rlalgo/tensor/device.hpp>

namespace rlalgo::tensor {

namespace detail {

inline constexpr std::string_view cuda_prefix = "cuda:";

// N of "cuda:N"; −1: another name.
inline int number_of_gpu(std::string_view name) {
  if (!name.starts_with(cuda_prefix)) return -1;
  const std::string_view digits = name.substr(cuda_prefix.size());
  if (digits.empty() || digits.size() > 3 ||
      !std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
    return -1;
  return std::atoi(std::string(digits).c_str());
}

// A backend that the program has registered, and whose guard it has.
inline std::optional<at::Device> registered_device(const std::string& name) {
  try {
    const at::Device device(name);
    if (device.type() != c10::DeviceType::PrivateUse1 || !c10::impl::hasDeviceGuardImpl(device.type()))
      return std::nullopt;
    return at::Device(device.type(), device.has_index() ? device.index() : c10::DeviceIndex{0});
  } catch (const c10::Error&) {
    return std::nullopt;  // LibTorch knows no such name
  }
}

// That the driver shows it, before anything is loaded. Where it shows none, loading says why.
inline void require_gpu(int number, const std::string& where) {
  if (const auto driver = find_cuda_driver(); driver && !driver->gpus.empty())
    (void)numbered_gpu(number, static_cast<int>(driver->gpus.size()), where);
}

inline std::string gibibytes(std::size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
  return text;
}

}  // namespace detail

RLALGO_INLINE bool is_device_name(std::string_view name) {
  return name == "auto" || name == "cpu" || name == "cuda" || detail::number_of_gpu(name) >= 0 ||
         detail::registered_device(std::string(name)).has_value();
}

RLALGO_INLINE DeviceChoice choose_device(const std::string& name, int local_rank, int ranks, const std::string& where) {
  if (name == "cpu") return {};
  if (name == "auto") {
    const std::optional<CudaDriver> driver = find_cuda_driver();
    if (!driver || driver->gpus.empty()) return {};
    try {
      const at::Device device = detail::numbered_gpu(local_rank, load_cuda(), where);
      return {device, "device: auto is " + device.str() + " (" + describe(device) + ")"};
    } catch (const core::Error& error) {
      if (ranks > 1 && error.number() == 13) throw;  // others have one: this rank alone would not
      return {at::Device(at::kCPU), "device: auto is the CPU, though there is a GPU: " + std::string(error.what())};
    }
  }
  if (const int number = detail::number_of_gpu(name); number >= 0) {
    if (ranks > 1)
      core::raise_usage("tensor", 12,
                        {.what = "one GPU is named for several ranks",
                         .found = name + " for " + std::to_string(ranks) + " ranks",
                         .expected = "cuda: each rank takes the GPU of its local rank",
                         .where = where});
    return {detail::numbered_gpu(number, load_cuda(), where)};
  }
  if (name == "cuda") detail::require_gpu(local_rank, where);
  if (name == "cuda") return {detail::numbered_gpu(local_rank, load_cuda(), where)};
  if (const auto device = detail::registered_device(name)) return {*device};
  core::raise_usage(
      "tensor", 12,
      {.what = "there is no such device", .found = name, .expected = "auto, cpu, cuda or cuda:N", .where = where});
}

RLALGO_INLINE DeviceMemory device_memory(at::Device device) {
  c10::DeviceAllocator* const allocator = detail::allocator_of(device);
  if (allocator == nullptr) return {};
  const auto [free, total] = allocator->getMemoryInfo(device.index());
  return {free, total};
}

RLALGO_INLINE void release_unused_memory(at::Device device) {
  if (c10::DeviceAllocator* const allocator = detail::allocator_of(device)) allocator->emptyCache();
}

RLALGO_INLINE std::string describe(at::Device device) {
  if (!device.is_cuda()) return device.str();
  const std::optional<CudaDriver> driver = find_cuda_driver();
  const auto number = static_cast<std::size_t>(std::max<int>(0, device.index()));
  if (!driver || number >= driver->gpus.size()) return device.str();
  return driver->gpus[number].name + ", " + detail::gibibytes(driver->gpus[number].bytes);
}

RLALGO_INLINE void raise_memory(at::Device device, const c10::Error& error, const std::string& remedy) {
  // c10's first sentences say what was asked for and what is there.
  std::string said = error.what_without_backtrace();
  if (const std::size_t end = said.find(". If reserved"); end != std::string::npos) said.resize(end);
  std::string now;
  try {
    const DeviceMemory memory = device_memory(device);
    if (memory.total > 0)
      now = "; " + detail::gibibytes(memory.free) + " of " + detail::gibibytes(memory.total) + " are free now";
  } catch (const std::exception&) {
    now = "; how much is free cannot be asked any more";
  }
  core::raise(
      "tensor", 14,
      {.what = "the memory of the device is used up", .found = said + now, .where = device.str(), .remedy = remedy});
}

}  // namespace rlalgo::tensor
