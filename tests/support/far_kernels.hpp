// The project's own kernels on the far device: those of the host (host_kernels.cpp), launched while its memory is open, counted, and
// recorded by its graphs.
#pragma once

#include <rlalgo/tensor/cuda_kernels.hpp>

namespace rlalgo::support::far {

[[nodiscard]] tensor::OwnKernels kernels();

// The launch of a kernel, or of a graph, that comes after `good` others is refused, as a GPU refuses one that it has no room for.
void fail_launch(int good = 0);

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
