// Which of the program's own kernels compute on the GPU of a run: those that were tried there and agreed with LibTorch's operators
// (remote/tried_kernels.hpp), unless RLALGO_CUDA_KERNELS says it.
#pragma once

#include <functional>
#include <string_view>

#include <c10/core/Device.h>

#include <rlalgo/remote/tried_kernels.hpp>

namespace rlalgo::cli {

// Tries them in other processes, and keeps what was found.
remote::TriedKernels try_kernels_on(
    at::Device device, const std::function<void(std::string_view name, bool agrees, std::string_view found)>& said);

// Sets RLALGO_CUDA_KERNELS for this process and those that it starts, if it is not set and the device is a GPU. They are tried
// where that was not done yet. Before anything is computed. `speaks`: of several ranks the first one.
void use_tried_kernels(at::Device device, bool speaks = true);

}  // namespace rlalgo::cli
