// The words in which kernels are written, beyond CUDA's own: launch(), and memory that a block shares.
//
// nvcc compiles kernels for a GPU. A C++ compiler compiles the same text as host code where something has said before what
// CUDA's words mean there (tests/support/on_host.hpp), which is how kernels are tested without a GPU.
//
//   launch(kernel, grid, block, stream, arguments…)  → cudaError_t of the launch; waits for nothing. An empty grid is an
//                                                      error of CUDA's, so a launcher returns before.
//   RLALGO_CUDA_SHARED(Type, name)                   memory of the block, not initialised; Type is a struct of arrays, so that
//                                                    an index beyond one of them is seen by a sanitizer
#pragma once

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define RLALGO_CUDA_SHARED(Type, name) __shared__ Type name

namespace rlalgo::cuda {

template <class... P, class... A>
inline cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream, A... arguments) {
  kernel<<<grid, block, 0, stream>>>(static_cast<P>(arguments)...);
  return cudaGetLastError();
}

}  // namespace rlalgo::cuda

#elif !defined(RLALGO_CUDA_SHARED)
#error "kernels are compiled by nvcc, or by a C++ compiler after tests/support/on_host.hpp"
#endif
