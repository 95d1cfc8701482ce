// Sixteen numbers in a register of AVX-512, from and to memory in float32 or bfloat16, and what is computed of them: the operations that
// detail/plain_registers.hpp describes, and more.
//
// For processors with avx512f, avx512bw and avx512vl: has_lanes() of features.hpp. A bfloat16 is any type of two bytes that has its bits. A number
// is rounded to the nearest bfloat16, to the even one of two as near; NaN stays NaN.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include <rlalgo/cpu/detail/instruction_set.hpp>

#if defined(__x86_64__)

#define RLALGO_LANES gnu::target("avx2,fma,avx512f,avx512bw,avx512vl")

namespace rlalgo::cpu::lanes {

inline constexpr std::int64_t count = 16;

using Floats = __m512;
using Some = __mmask16;

template <class T>
concept Bfloat16 = sizeof(T) == 2;

// (maskz: g++ 12 warns of its own header in the forms without.)
inline constexpr Some all_lanes = 0xFFFF;

// The first n lanes, at most all.
[[nodiscard]] inline Some first(std::int64_t n) {
  return n >= count ? all_lanes : static_cast<Some>((1U << (n > 0 ? n : 0)) - 1);
}

// Those of sixteen numbers, `number` and the next ones, that lie in [begin, end).
[[nodiscard]] inline Some within(std::int64_t number, std::int64_t begin, std::int64_t end) {
  return static_cast<Some>(first(end - number) & ~first(begin - number));
}

}  // namespace rlalgo::cpu::lanes

RLALGO_CPU_BEGIN("avx2,fma,avx512f,avx512bw,avx512vl")
namespace rlalgo::cpu::lanes {

[[nodiscard]] RLALGO_CPU_OPERATION Floats all(float x) { return _mm512_set1_ps(x); }
[[nodiscard]] RLALGO_CPU_OPERATION Floats zeros() { return _mm512_setzero_ps(); }

// Of `some`; the others are 0.
[[nodiscard]] RLALGO_CPU_OPERATION Floats load(const float* p, Some some) { return _mm512_maskz_loadu_ps(some, p); }
template <Bfloat16 T>
[[nodiscard]] RLALGO_CPU_OPERATION Floats load(const T* p, Some some) {
  const __m512i low = _mm512_maskz_cvtepu16_epi32(some, _mm256_maskz_loadu_epi16(some, p));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(all_lanes, low, 16));
}
[[nodiscard]] RLALGO_CPU_OPERATION Floats load(const float* p) { return _mm512_loadu_ps(p); }
template <Bfloat16 T>
[[nodiscard]] RLALGO_CPU_OPERATION Floats load(const T* p) {
  return load(p, all_lanes);
}

// The bits of sixteen bfloat16, each in the low half of its lane.
[[nodiscard]] RLALGO_CPU_OPERATION __m512i rounded_bits(Floats x) {
  const __m512i bits = _mm512_castps_si512(x),
                odd = _mm512_and_si512(_mm512_maskz_srli_epi32(all_lanes, bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7FFF));
  return _mm512_mask_mov_epi32(_mm512_maskz_srli_epi32(all_lanes, sum, 16), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                               _mm512_set1_epi32(0x7FC0));
}

RLALGO_CPU_OPERATION void store(float* p, Some some, Floats x) { _mm512_mask_storeu_ps(p, some, x); }
template <Bfloat16 T>
RLALGO_CPU_OPERATION void store(T* p, Some some, Floats x) {
  _mm256_mask_storeu_epi16(p, some, _mm512_maskz_cvtepi32_epi16(all_lanes, rounded_bits(x)));
}
RLALGO_CPU_OPERATION void store(float* p, Floats x) { _mm512_storeu_ps(p, x); }

// x as memory of type T would give it back.
template <class T>
[[nodiscard]] RLALGO_CPU_OPERATION Floats rounded(Floats x) {
  if constexpr (sizeof(T) == sizeof(float))
    return x;
  else
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(all_lanes, rounded_bits(x), 16));
}

[[nodiscard]] RLALGO_CPU_OPERATION Floats product(Floats x, Floats y) {
  Floats out = _mm512_mul_ps(x, y);
  asm("" : "+v"(out));
  return out;
}
[[nodiscard]] RLALGO_CPU_OPERATION float fma(float x, float y, float z) { return std::fma(x, y, z); }
[[nodiscard]] RLALGO_CPU_OPERATION float fnma(float x, float y, float z) { return std::fma(-x, y, z); }
[[nodiscard]] RLALGO_CPU_OPERATION Floats fma(Floats x, Floats y, Floats z) { return _mm512_fmadd_ps(x, y, z); }
[[nodiscard]] RLALGO_CPU_OPERATION Floats fnma(Floats x, Floats y, Floats z) { return _mm512_fnmadd_ps(x, y, z); }
[[nodiscard]] RLALGO_CPU_OPERATION Floats fms(Floats x, Floats y, Floats z) { return _mm512_fmsub_ps(x, y, z); }
[[nodiscard]] RLALGO_CPU_OPERATION Some other_than(Floats x, float y) {
  return _mm512_cmp_ps_mask(x, all(y), _CMP_NEQ_UQ);
}
[[nodiscard]] RLALGO_CPU_OPERATION Floats larger(Floats x, Floats y) { return _mm512_maskz_max_ps(all_lanes, x, y); }
[[nodiscard]] RLALGO_CPU_OPERATION Floats smaller(Floats x, Floats y) { return _mm512_maskz_min_ps(all_lanes, x, y); }
[[nodiscard]] RLALGO_CPU_OPERATION Floats pick(Some some, Floats x, Floats y) { return _mm512_mask_mov_ps(y, some, x); }
[[nodiscard]] RLALGO_CPU_OPERATION Floats keep(Some some, Floats x) { return _mm512_maskz_mov_ps(some, x); }
[[nodiscard]] RLALGO_CPU_OPERATION Floats nearest(Floats x) {
  return _mm512_maskz_roundscale_ps(all_lanes, x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
[[nodiscard]] RLALGO_CPU_OPERATION Floats scaled_above(Floats x, float limit, Floats p, Floats n) {
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, all(limit), _CMP_NLE_UQ), p, n);
}

// The lower eight lanes (0) or the upper ones (1).
template <int Which>
[[nodiscard]] RLALGO_CPU_OPERATION __m256 half(Floats x) {
  return _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xF, _mm512_castps_pd(x), Which));
}

[[nodiscard]] RLALGO_CPU_OPERATION float sum(Floats x) {
  const __m256 eight = _mm256_add_ps(half<0>(x), half<1>(x));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

[[nodiscard]] RLALGO_CPU_OPERATION float largest(Floats x) {
  const __m256 eight = _mm256_max_ps(half<0>(x), half<1>(x));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace rlalgo::cpu::lanes

#define RLALGO_CPU_SET lanes
#include <rlalgo/cpu/detail/exponentials.hpp>
#undef RLALGO_CPU_SET
RLALGO_CPU_END

#endif
