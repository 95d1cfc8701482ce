// y = x Ŵᵀ with Ŵ in bytes (kernels.hpp): few rows of x, whose product reads little but the codes.
//
// A block of 8 warps has strips of 16 columns of y and up to 64 rows; the warps of a strip share its groups of 32 inner columns, four
// groups at a time in turn, and their sums are added in their order. How many warps a strip has follows from the number of columns
// alone, and each row is a column of its own in the products of tensor cores, so its bits depend on nothing else. Codes become
// bfloat16 in registers, which is exact; what a group of int8 sums is in float32 and multiplied by the scale then, so no scaled weight
// is ever rounded. The order of what is summed over is free: each thread reads 8 codes of a row side by side, and 16 bytes of x
// where its rows and address allow that.
//
// Source of the layout of weights as the product's rows: Frantar et al., arXiv 2408.11743 (section 3), without its rearranged memory.
#pragma once

#include <cmath>
#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/float8.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>
#include <rlalgo/cuda/warp.cuh>

namespace rlalgo::cuda {

inline constexpr int product_8bit_warps = 8, product_8bit_strip = 16, product_8bit_at_once = 4;

// Warps that share a strip: more where there are few strips.
[[nodiscard]] __host__ __device__ constexpr int product_8bit_shares(std::int64_t columns) {
  return columns >= 8192 ? 2 : columns >= 4096 ? 4 : 8;
}

struct alignas(8) EightCodes {
  std::uint32_t four[2];
};
struct alignas(16) EightInputs {
  std::uint32_t pair[4];  // bfloat16
};

// Four codes as two pairs of bfloat16.
template <Code8bit Code>
__device__ inline void pairs_of_codes(std::uint32_t four, std::uint32_t& first, std::uint32_t& second) {
  std::uint32_t bits[4];
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    if constexpr (Code == Code8bit::int8)  // 2²³ + 128 + q, less the first two
      bits[i] = __float_as_uint(__uint_as_float(0x4B000000U | ((four ^ 0x80808080U) >> 8U * i & 0xFFU)) - 8388736.0F);
    else
      bits[i] = __float_as_uint(number_of_float8(four >> 8U * i & 0xFFU));
  }
  first = bits[0] >> 16U | (bits[1] & 0xFFFF0000U);
  second = bits[2] >> 16U | (bits[3] & 0xFFFF0000U);
}

template <int Tiles>
struct Product8bitShared {
  float sums[product_8bit_warps][product_8bit_strip][8 * Tiles + 1];
};

// Tiles: of 8 rows of x; `sixteens`: x is read sixteen bytes at a time.
template <Code8bit Code, int Tiles>
__global__ void __launch_bounds__(32 * product_8bit_warps, 1) product_8bit_kernel(Product8bit a, bool sixteens) {
  RLALGO_CUDA_SHARED(Product8bitShared<Tiles>, shared);
  constexpr bool grouped = Code == Code8bit::int8;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4,
            t = lane % 4;
  const int shares = product_8bit_shares(a.columns), strips = product_8bit_warps / shares;
  const std::int64_t groups = (a.inner + product_8bit_group - 1) / product_8bit_group,
                     first_row = static_cast<std::int64_t>(blockIdx.y) * 8 * Tiles,
                     first_column = static_cast<std::int64_t>(blockIdx.x) * strips * product_8bit_strip,
                     column = first_column + warp / shares * product_8bit_strip + g;
  const auto* const x = static_cast<const std::uint16_t*>(a.x);

  float sum[Tiles][4] = {};
  for (std::int64_t chunk = warp % shares * product_8bit_at_once; chunk < groups;
       chunk += shares * product_8bit_at_once) {
    EightCodes codes[product_8bit_at_once][2] = {};  // of columns g and g + 8 of the strip
    float scale[2] = {};                             // of group chunk + t
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t own = column + 8 * half;
      if (own >= a.columns) continue;
#pragma unroll
      for (int i = 0; i < product_8bit_at_once; ++i)
        if (chunk + i < groups)
          codes[i][half] =
              *reinterpret_cast<const EightCodes*>(a.codes + (own * groups + chunk + i) * product_8bit_group + 8 * t);
      if (grouped && chunk + t < groups) scale[half] = a.scales[own * groups + chunk + t];
    }
#pragma unroll
    for (int i = 0; i < product_8bit_at_once; ++i) {
      float factor[2] = {};
      if constexpr (grouped)
#pragma unroll
        for (int half = 0; half < 2; ++half) factor[half] = __shfl_sync(whole_warp, scale[half], lane / 4 * 4 + i);
      if (chunk + i >= groups) continue;
      std::uint32_t w[2][4];  // elements 8 t … 8 t + 3 of the group, and the next four
#pragma unroll
      for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          pairs_of_codes<Code>(codes[i][half].four[step], w[step][half], w[step][2 + half]);
      const std::int64_t k = (chunk + i) * product_8bit_group + 8 * t;
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile) {
        const std::int64_t row = first_row + 8 * tile + g;
        EightInputs eight = {};
        const std::uint16_t* const from = x + row * a.inner + k;
        if (row < a.rows && k < a.inner && sixteens) eight = *reinterpret_cast<const EightInputs*>(from);
        if (row < a.rows && !sixteens)
#pragma unroll
          for (int j = 0; j < 8; ++j)
            if (k + j < a.inner) eight.pair[j / 2] |= static_cast<std::uint32_t>(from[j]) << 16U * (j % 2);
        if constexpr (grouped) {
          float part[4] = {};
#pragma unroll
          for (int step = 0; step < 2; ++step)
            product_16x8x16(part, w[step], eight.pair[2 * step], eight.pair[2 * step + 1]);
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[tile][j] = fmaf(part[j], factor[j / 2], sum[tile][j]);
        } else {
#pragma unroll
          for (int step = 0; step < 2; ++step)
            product_16x8x16(sum[tile], w[step], eight.pair[2 * step], eight.pair[2 * step + 1]);
        }
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < Tiles; ++tile)
#pragma unroll
    for (int j = 0; j < 4; ++j) shared.sums[warp][g + j / 2 * 8][8 * tile + 2 * t + j % 2] = sum[tile][j];
  __syncthreads();

  const int width = strips * product_8bit_strip;
  auto* const y = static_cast<Bfloat16*>(a.y);
  for (int i = static_cast<int>(threadIdx.x); i < 8 * Tiles * width; i += 32 * product_8bit_warps) {
    const std::int64_t row = first_row + i / width, to = first_column + i % width;
    if (row >= a.rows || to >= a.columns) continue;
    const int first = i % width / product_8bit_strip * shares;
    float all = 0.0F;
    for (int w = 0; w < shares; ++w) all += shared.sums[first + w][i % product_8bit_strip][i / width];
    if constexpr (!grouped) all *= a.scales[to];
    Bfloat16& out = y[row * a.columns + to];
    out = rounded<Bfloat16>(a.add ? __fadd_rn(widen(out), all) : all);
  }
}

namespace detail {

template <Code8bit Code>
inline cudaError_t product_8bit_of(const Product8bit& a, cudaStream_t stream) {
  const auto run = [&]<int Tiles>() {
    const std::int64_t width = product_8bit_warps / product_8bit_shares(a.columns) * product_8bit_strip;
    return launch(product_8bit_kernel<Code, Tiles>,
                  dim3(static_cast<unsigned>((a.columns + width - 1) / width),
                       static_cast<unsigned>((a.rows + 8 * Tiles - 1) / (8 * Tiles))),
                  dim3(32 * product_8bit_warps), stream, a, in_sixteens<Bfloat16>(a.inner, a.x));
  };
  if (a.rows <= 8) return run.template operator()<1>();
  if (a.rows <= 16) return run.template operator()<2>();
  if (a.rows <= 32) return run.template operator()<4>();
  return run.template operator()<8>();
}

}  // namespace detail

inline cudaError_t product_8bit(const Product8bit& a, cudaStream_t stream) {
  if (a.rows == 0 || a.columns == 0) return cudaSuccess;
  if (a.inner <= 0 || reinterpret_cast<std::uintptr_t>(a.codes) % 8 != 0 || a.rows > 65535)
    return cudaErrorInvalidValue;
  return a.code == Code8bit::int8 ? detail::product_8bit_of<Code8bit::int8>(a, stream)
                                  : detail::product_8bit_of<Code8bit::e4m3>(a, stream);
}

}  // namespace rlalgo::cuda
