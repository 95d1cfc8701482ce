// Which operations a decoder uses for tensors of a device: the one place where that is chosen.
#pragma once

#include <c10/core/Device.h>

#include <rlalgo/model/aten_operations.hpp>
#include <rlalgo/model/cpu_operations.hpp>
#include <rlalgo/model/cuda_operations.hpp>
#include <rlalgo/model/operations.hpp>

namespace rlalgo::model {

// They live as long as the program. Kernels of the project's own compute on a GPU, or wherever own_kernels() says.
[[nodiscard]] inline const Operations& operations_for(at::Device device) {
  static const CpuOperations cpu;
  static const AtenOperations aten;
  static const CudaOperations cuda;
  if (device.is_cpu()) return cpu;
  if (device.type() == tensor::own_kernels().device) return cuda;
  return aten;
}

}  // namespace rlalgo::model
