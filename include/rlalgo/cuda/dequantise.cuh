// A part of a matrix in 4 or 8 bits as numbers (kernels.hpp): a thread for sixteen bytes of them, or for one.
//
// Source: Dettmers et al., arXiv 2305.14314, section 3, and arXiv 2208.07339, section 2, in the arithmetic of model/quantised_weight.hpp:
// each product and sum is rounded to float32, then the weight to the element.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>

namespace rlalgo::cuda {

inline constexpr int dequantise_threads = 256;

struct DequantiseValues {
  float of[16];
};

// What codes of 4 bits in block `block` are multiplied by.
__device__ inline float dequantise_scale(const Dequantise& a, std::int64_t block, int group_shift) {
  if (a.scale_values == nullptr) return static_cast<const float*>(a.scales)[block];
  const std::uint8_t code = static_cast<const std::uint8_t*>(a.scales)[block];
  return __fadd_rn(__fmul_rn(a.scale_values[code], a.scale_scales[block >> group_shift]), a.scale_offset);
}

template <class T, int N, int Bits>
__global__ void __launch_bounds__(dequantise_threads)
    dequantise_kernel(Dequantise a, int block_shift, int group_shift) {
  using Run = Neighbours<T, N>;
  RLALGO_CUDA_SHARED(DequantiseValues, values);
  if constexpr (Bits == 4) {
    if (threadIdx.x < 16) values.of[threadIdx.x] = a.values[threadIdx.x];
    __syncthreads();
  }
  const std::uint32_t item = blockIdx.x * dequantise_threads + threadIdx.x,
                      runs = static_cast<std::uint32_t>(a.columns) / N;
  if (item >= static_cast<std::uint32_t>(a.rows) * runs) return;
  const std::uint32_t row = item / runs, column = item % runs * N;
  const std::int64_t at = (a.row + row) * a.width + a.column + column;  // in the whole matrix
  Run out;
  if constexpr (Bits == 8) {
    const float scale = __fmul_rn(static_cast<const float*>(a.scales)[a.row + row], static_cast<float>(1.0 / 127.0));
    const auto codes = *reinterpret_cast<const Neighbours<std::int8_t, N>*>(a.codes + at);
#pragma unroll
    for (int k = 0; k < N; ++k) out.at[k] = rounded<T>(__fmul_rn(static_cast<float>(codes.at[k]), scale));
  } else {
    const float scale = dequantise_scale(a, at >> block_shift, group_shift);
    if constexpr (N == 1) {
      const unsigned byte = a.codes[at / 2];
      out.at[0] = rounded<T>(__fmul_rn(values.of[at % 2 == 0 ? byte >> 4U : byte & 0xFU], scale));
    } else {
      const auto bytes = *reinterpret_cast<const Neighbours<std::uint8_t, N / 2>*>(a.codes + at / 2);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const unsigned byte = bytes.at[k / 2];
        out.at[k] = rounded<T>(__fmul_rn(values.of[k % 2 == 0 ? byte >> 4U : byte & 0xFU], scale));
      }
    }
  }
  *reinterpret_cast<Run*>(static_cast<T*>(a.out) + static_cast<std::int64_t>(item) * N) = out;
}

namespace detail {

// n of 2ⁿ = x; −1 of other numbers.
inline int power_of_two(std::int64_t x) {
  for (int n = 0; n < 62; ++n)
    if (x == std::int64_t{1} << n) return n;
  return -1;
}

}  // namespace detail

inline cudaError_t dequantise(const Dequantise& a, cudaStream_t stream) {
  if (a.rows == 0 || a.columns == 0) return cudaSuccess;
  const int block = detail::power_of_two(a.block),
            group = a.scale_values == nullptr ? 0 : detail::power_of_two(a.group);
  const bool four = a.bits == 4;
  if ((four && (block < 0 || group < 0)) || (!four && a.bits != 8) || a.rows > dequantise_most / a.columns - 1)
    return cudaErrorInvalidValue;
  const auto kernel = [&]<class T, int N>() {
    const std::int64_t items = a.rows * (a.columns / N);
    return launch(four ? dequantise_kernel<T, N, 4> : dequantise_kernel<T, N, 8>,
                  dim3(static_cast<unsigned>((items + dequantise_threads - 1) / dequantise_threads)),
                  dim3(dequantise_threads), stream, a, block, group);
  };
  // A run lies in one block, and its codes at a multiple of their bytes.
  const auto of = [&]<class T>() {
    constexpr int n = sixteen_bytes<T>;
    const bool whole = a.columns % n == 0 && a.column % n == 0 && a.width % n == 0 && (!four || a.block % n == 0) &&
                       in_sixteens<T>(n, a.codes, a.out);
    return whole ? kernel.template operator()<T, n>() : kernel.template operator()<T, 1>();
  };
  return a.element == Element::float32 ? of.template operator()<float>() : of.template operator()<Bfloat16>();
}

}  // namespace rlalgo::cuda
