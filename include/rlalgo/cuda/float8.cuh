// Numbers in 8 bits with a sign, four bits of an exponent (bias 7) and three of a fraction (e4m3): ±(1 + f/8)·2^(e−7), ±f/8·2^(−6)
// where e is 0, at most ±448; no infinities, and NaN where all of e and f are 1. Source: Micikevicius et al., arXiv 2209.05433.
//
// A number is rounded to the nearest, to the even one of two as near; beyond ±448 it is that (vLLM's and CUDA's saturation); NaN stays
// NaN. Every one of them is a bfloat16. All of it is whole numbers and float32, so any GPU has it.
#pragma once

#include <cmath>
#include <cstdint>

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>

namespace rlalgo::cuda {

struct Float8 {
  std::uint8_t bits;
};

// The number of a code that is not NaN.
__device__ inline float number_of_float8(std::uint32_t code) {
  constexpr float two_to_120 = 1329227995784915872903807060280344576.0F;  // the biases are so far apart
  return __uint_as_float((code & 0x80U) << 24U | (code & 0x7FU) << 20U) * two_to_120;
}

__device__ inline float widen(Float8 x) { return (x.bits & 0x7FU) == 0x7FU ? NAN : number_of_float8(x.bits); }

template <>
__device__ inline Float8 rounded<Float8>(float x) {
  const std::uint32_t bits = __float_as_uint(x), sign = bits >> 24U & 0x80U, size = bits & 0x7FFFFFFFU;
  std::uint32_t code = 0;
  if (size > 0x7F800000U)
    code = 0x7FU;
  else if (size >= 0x43E00000U)  // 448
    code = 0x7EU;
  else if (size < 0x3C800000U)  // 2⁻⁶: whole numbers of 2⁻⁹, which adding 2¹⁴ rounds to
    code = __float_as_uint(__fadd_rn(__uint_as_float(size), 16384.0F)) - 0x46800000U;
  else
    code = ((size + 0x7FFFFU + (size >> 20U & 1U)) >> 20U) - (120U << 3U);
  return {static_cast<std::uint8_t>(sign | code)};
}

}  // namespace rlalgo::cuda
