// What the lanes of a warp, and the warps of a block, do together: sums in a fixed order, and products of small matrices
// (the only PTX here).
#pragma once

#include <cmath>
#include <cstdint>

#include <rlalgo/cuda/language.cuh>

namespace rlalgo::cuda {

inline constexpr unsigned whole_warp = ~0U;

// Σ over the lanes, the same in each.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) x += __shfl_xor_sync(whole_warp, x, bits);
  return x;
}

// The largest over the lanes, the same in each.
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int bits = 1; bits < 32; bits *= 2) x = fmaxf(x, __shfl_xor_sync(whole_warp, x, bits));
  return x;
}

template <int Warps>
struct WarpSums {
  float of[Warps];
};

// Σ over the threads of a block of so many warps, the same in each; `sums` is used by this sum alone.
template <int Warps>
__device__ inline float block_sum(float x, WarpSums<Warps>& sums) {
  x = warp_sum(x);
  if constexpr (Warps == 1) return x;
  if (threadIdx.x % 32 == 0) sums.of[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0F;
#pragma unroll
  for (int w = 0; w < Warps; ++w) sum += sums.of[w];
  return sum;
}

// c[16, 8] += a[16, 16]·b[16, 8] of a warp, a and b in bfloat16. Lane 4g + t has of c the columns 2t and 2t + 1 of rows g and
// g + 8; of a, in pairs, columns 2t and 2t + 8 of rows g and g + 8 (row first); of b rows 2t and 2t + 8 of column g.
__device__ inline void product_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  support::on_host::product_16x8x16(c, a, b0, b1);
#endif
}

}  // namespace rlalgo::cuda
