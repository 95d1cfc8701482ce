// The device of a run, chosen once by name.
//
//   auto     the GPU of this rank where a driver shows one and LibTorch's CUDA half can be loaded; else the CPU
//   cpu
//   cuda     the GPU of this rank: cuda:(local rank)
//   cuda:N   that one, for a single rank
//   another  the name of a backend that the program has registered with LibTorch (c10::register_privateuse1_backend)
//
// Where weights lie decides what computes on them: model::operations_for, inference::engine_device_for and the optimizers
// follow the device of their tensors, and no other code asks.
//
// Errors: [rlalgo.tensor.12] (usage) a name of no device; [.13] a GPU that is not there; [.14] memory of a device is used
// up; those of cuda_library.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

namespace rlalgo::tensor {

struct DeviceChoice {
  at::Device device = at::Device(at::kCPU);
  std::string note = {};  // what is worth a line: the GPU that `auto` took, or why it took none though there is one
};

// Whether choose_device() knows the form of the name; nothing is loaded.
[[nodiscard]] bool is_device_name(std::string_view name);

// `local_rank`: number of this process among those of its machine; `ranks`: of the run. `where`: the key or option, for
// errors.
[[nodiscard]] DeviceChoice choose_device(const std::string& name, int local_rank = 0, int ranks = 1,
                                         const std::string& where = "device");

struct DeviceMemory {
  std::size_t free = 0, total = 0;  // bytes
};
// Of a device other than the CPU. {0, 0}: it does not say.
[[nodiscard]] DeviceMemory device_memory(at::Device device);

// Gives back to the device what LibTorch keeps of it and no tensor uses, so that what is taken next does not come to lie in the middle of
// a large block that will be wanted whole again.
void release_unused_memory(at::Device device);

// "NVIDIA H100 80GB HBM3, 79.2 GiB" of a GPU; the device's name of another.
[[nodiscard]] std::string describe(at::Device device);

// Raises tensor.14 for an allocator's error: what was asked for, what is there, and `remedy`.
[[noreturn]] void raise_memory(at::Device device, const c10::Error& error, const std::string& remedy);

// f(), where running out of the device's memory is tensor.14.
template <class F>
decltype(auto) with_memory_errors(at::Device device, const std::string& remedy, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const c10::OutOfMemoryError& error) {
    raise_memory(device, error, remedy);
  }
}

}  // namespace rlalgo::tensor

#ifndef RLALGO_COMPILED
#include <rlalgo/tensor/detail/device_impl.hpp>
#endif
