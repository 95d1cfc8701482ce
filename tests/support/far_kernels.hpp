// The project's own kernels on the far device: those of the host (host_kernels.cpp), launched while its memory is open, counted, and
// recorded by its graphs.
#pragma once

#include <rlalgo/tensor/cuda_kernels.hpp>

namespace rlalgo::support::far {

[[nodiscard]] tensor::OwnKernels kernels();

// While one lives, the program computes with them on the far device.
class WithKernels {
 public:
  WithKernels();
  WithKernels(const WithKernels&) = delete;
  WithKernels& operator=(const WithKernels&) = delete;
  ~WithKernels();

 private:
  tensor::OwnKernels before_;
};

}  // namespace rlalgo::support::far
