// Dropout (kernels.hpp): a thread for each block of four random words, so for four elements.
//
// Source: Srivastava et al., "Dropout", JMLR 15 (2014), with what is kept divided by 1 − p. The words depend on the numbers of the
// elements alone, so forward pass, recomputation and backward pass have one mask, and it is never stored.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>
#include <rlalgo/cuda/philox.cuh>

namespace rlalgo::cuda {

inline constexpr int dropout_threads = 256;

// Blocks of words that a row of elements has a part of, at most: it may begin and end within one.
__device__ __host__ inline std::int64_t dropout_blocks(const Dropout& a) {
  return a.rows == nullptr ? (a.count + 3) / 4 : (a.width + 6) / 4;
}

template <class T>
__global__ void __launch_bounds__(dropout_threads) dropout_kernel(Dropout a) {
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * dropout_threads + threadIdx.x;
  const std::int64_t blocks = dropout_blocks(a), row = place / blocks;
  const std::int64_t width = a.rows == nullptr ? a.count : a.width;
  if (row * width >= a.count) return;
  const std::int64_t first = a.rows == nullptr ? 0 : a.rows[row] * width;  // number of the row's first element
  const std::int64_t block = first / 4 + place % blocks;
  const PhiloxWords words = philox(a.seed, dropout_stream, a.draw, a.module << 40U | static_cast<std::uint64_t>(block));
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const std::int64_t i = block * 4 + w - first;
    if (i < 0 || i >= width) continue;
    const std::int64_t at = row * width + i;
    static_cast<T*>(a.out)[at] =
        rounded<T>(words.word[w] < a.threshold ? 0.0F : __fmul_rn(widen(static_cast<const T*>(a.x)[at]), a.keep));
  }
}

inline cudaError_t dropout(const Dropout& a, cudaStream_t stream) {
  if (a.count == 0 || a.width == 0) return cudaSuccess;
  const std::int64_t places = dropout_blocks(a) * (a.rows == nullptr ? 1 : a.count / a.width);
  return launch(a.element == Element::float32 ? dropout_kernel<float> : dropout_kernel<Bfloat16>,
                dim3(static_cast<unsigned>((places + dropout_threads - 1) / dropout_threads)), dim3(dropout_threads),
                stream, a);
}

}  // namespace rlalgo::cuda
