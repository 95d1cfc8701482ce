// Row sums under a mask, on a GPU: out[r] = Σ_t mask[r, t]·value[r, t].
//
// Shapes: value, mask [rows, columns] f32, row-major, device memory; out [rows] f32. One block per row; f32
// accumulation in a fixed order, so equal inputs give equal bits. A mask value of 0 hides its entry even when that
// entry is NaN.
//
// Errors: the launcher returns the launch's cudaError_t; it does not wait for the stream.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace rlalgo::cuda {

inline constexpr int masked_row_sum_threads = 256;  // per block; a power of two, as the reduction tree needs

template <int Threads>
__global__ void masked_row_sum_kernel(const float* __restrict__ value, const float* __restrict__ mask,
                                      float* __restrict__ out, std::int64_t columns) {
  __shared__ float partial[Threads];
  const std::int64_t row = blockIdx.x;
  const float* row_value = value + row * columns;
  const float* row_mask = mask + row * columns;
  float sum = 0.0F;
  for (std::int64_t t = threadIdx.x; t < columns; t += Threads)
    if (row_mask[t] != 0.0F) sum += row_mask[t] * row_value[t];
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int width = Threads / 2; width > 0; width /= 2) {
    if (static_cast<int>(threadIdx.x) < width) partial[threadIdx.x] += partial[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[row] = partial[0];
}

inline cudaError_t masked_row_sum(const float* value, const float* mask, float* out, std::int64_t rows,
                                  std::int64_t columns, cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  masked_row_sum_kernel<masked_row_sum_threads>
      <<<static_cast<unsigned>(rows), masked_row_sum_threads, 0, stream>>>(value, mask, out, columns);
  return cudaGetLastError();
}

}  // namespace rlalgo::cuda
