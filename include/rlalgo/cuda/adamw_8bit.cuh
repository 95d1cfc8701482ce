// AdamW with moments in 8 bits (kernels.hpp): a warp for each block of 256 elements, eight of them a lane.
//
//   m ← β₁m̂8 + (1 − β₁)g;   v ← β₂v̂8 + (1 − β₂)g²;   p ← p·(1 − lr·λ) − lr/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)
//
// Source: Dettmers et al., "8-bit Optimizers via Block-wise Quantization", arXiv 2110.02861, section 2 and figure 1. Codes, moments, master
// and its rounding are read and written once. Every product and sum is rounded by itself, so the bits are those of optim/adamw_8bit.hpp on
// the CPU: the nearest code of x is the number of halves between codes that are below x.
#pragma once

#include <cmath>
#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>
#include <rlalgo/cuda/warp.cuh>

namespace rlalgo::cuda {

inline constexpr int adamw_8bit_threads = 256, adamw_8bit_each = adamw_8bit_block / 32;

struct AdamW8bitTables {
  float m_values[256], v_values[256], m_bounds[256], v_bounds[256];
};

// Element number k of a lane: pairs of neighbours, so that no other lane writes to the two bytes of their codes.
__device__ inline int adamw_8bit_place(int k, int lane) { return k / 2 * 64 + 2 * lane + k % 2; }

// Of x in [−1, 1].
__device__ inline std::uint8_t nearest_code(const float (&bounds)[256], float x) {
  int code = 0;
#pragma unroll
  for (int step = 128; step > 0; step /= 2)
    if (bounds[code + step - 1] < x) code += step;
  return static_cast<std::uint8_t>(code);
}

// x / largest, as the CPU computes it: by the inverse, unless that is too large for a float; 0 where all are.
__device__ inline float scaled(float x, float largest) {
  if (largest == 0.0F) return 0.0F;
  const float inverse = 1.0F / largest;
  return __float_as_uint(inverse) == 0x7F800000U ? x / largest : __fmul_rn(x, inverse);
}

template <class T>
__global__ void __launch_bounds__(adamw_8bit_threads) adamw_8bit_kernel(AdamW8bit a) {
  RLALGO_CUDA_SHARED(AdamW8bitTables, tables);
  if (a.skip != nullptr && *a.skip != 0.0F) return;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  tables.m_values[thread] = a.tables[thread];
  tables.v_values[thread] = a.tables[256 + thread];
  tables.m_bounds[thread] = a.tables[512 + thread];
  tables.v_bounds[thread] = a.tables[768 + thread];
  __syncthreads();
  const int block = static_cast<int>(blockIdx.x) * (adamw_8bit_threads / 32) + thread / 32;
  if (block >= a.blocks) return;
  int item = 0;
#pragma unroll
  for (int step = 32; step > 0; step /= 2)
    if (item + step < a.count && a.first[item + step] <= block) item += step;
  const AdamW8bitItem& of = a.items[item];
  const std::int64_t own = block - a.first[item], at = of.block + own;
  const std::int64_t begin = own * adamw_8bit_block;
  const float m_scale = a.m_scale[at], v_scale = a.v_scale[at], size = a.sizes[of.number], root = a.roots[of.number];
  std::uint8_t* const m_codes = a.m + at * adamw_8bit_block;
  std::uint8_t* const v_codes = a.v + at * adamw_8bit_block;
  float m[adamw_8bit_each], v[adamw_8bit_each], m_most = 0.0F, v_most = 0.0F;
#pragma unroll
  for (int k = 0; k < adamw_8bit_each; ++k) {
    const int place = adamw_8bit_place(k, lane);
    m[k] = v[k] = 0.0F;
    if (begin + place >= of.elements) continue;
    float g = widen(static_cast<const T*>(of.gradient)[begin + place]);
    if (a.divisor != nullptr) g = g / *a.divisor;
    m[k] = __fadd_rn(__fmul_rn(__fmul_rn(tables.m_values[m_codes[place]], m_scale), a.beta1), __fmul_rn(a.rest1, g));
    v[k] = __fadd_rn(__fmul_rn(__fmul_rn(tables.v_values[v_codes[place]], v_scale), a.beta2),
                     __fmul_rn(__fmul_rn(a.rest2, g), g));
    const float below = __fadd_rn(sqrtf(v[k]) / root, a.epsilon);
    const float p = __fadd_rn(__fmul_rn(of.master[begin + place], of.kept), __fmul_rn(size, m[k]) / below);
    of.master[begin + place] = p;
    if (of.value != nullptr) static_cast<T*>(of.value)[begin + place] = rounded<T>(p);
    m_most = fmaxf(m_most, fabsf(m[k]));
    v_most = fmaxf(v_most, fabsf(v[k]));
  }
  m_most = warp_max(m_most);
  v_most = warp_max(v_most);
#pragma unroll
  for (int k = 0; k < adamw_8bit_each; ++k) {
    const int place = adamw_8bit_place(k, lane);
    if (begin + place >= of.elements) continue;
    m_codes[place] = nearest_code(tables.m_bounds, scaled(m[k], m_most));
    v_codes[place] = nearest_code(tables.v_bounds, scaled(v[k], v_most));
  }
  __syncwarp();  // every lane has read the scales
  if (lane == 0) {
    a.m_scale[at] = m_most;
    a.v_scale[at] = v_most;
  }
}

inline cudaError_t adamw_8bit(const AdamW8bit& a, cudaStream_t stream) {
  if (a.blocks == 0) return cudaSuccess;
  constexpr int each = adamw_8bit_threads / 32;
  return launch(a.element == Element::float32 ? adamw_8bit_kernel<float> : adamw_8bit_kernel<Bfloat16>,
                dim3(static_cast<unsigned>((a.blocks + each - 1) / each)), dim3(adamw_8bit_threads), stream, a);
}

}  // namespace rlalgo::cuda
