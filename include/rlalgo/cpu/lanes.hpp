// Sixteen numbers in a register of AVX-512, from and to memory in float32 or bfloat16, and e^x of them.
//
// For processors with avx512f, avx512bw and avx512vl: has_lanes() of features.hpp. A bfloat16 is any type of two bytes that has its bits. A number is rounded to the nearest bfloat16, to the even one of
// two as near; NaN stays NaN.
#pragma once

#include <cstdint>
#include <initializer_list>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rlalgo::cpu {

#if defined(__x86_64__)

namespace lanes {

#define RLALGO_LANES gnu::target("avx2,fma,avx512f,avx512bw,avx512vl")

inline constexpr std::int64_t count = 16;

template <class T>
concept Bfloat16 = sizeof(T) == 2;

// The first n lanes, at most all.
[[nodiscard]] inline __mmask16 first(std::int64_t n) {
  return n >= count ? __mmask16{0xFFFF} : static_cast<__mmask16>((1U << (n > 0 ? n : 0)) - 1);
}

// Those of sixteen numbers, `first_number` and the next ones, that lie in [begin, end).
[[nodiscard]] inline __mmask16 within(std::int64_t first_number, std::int64_t begin, std::int64_t end) {
  return static_cast<__mmask16>(first(end - first_number) & ~first(begin - first_number));
}

// Of `some`; the others are 0.
[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline __m512 load(const float* p, __mmask16 some) {
  return _mm512_maskz_loadu_ps(some, p);
}
template <Bfloat16 T>
[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline __m512 load(const T* p, __mmask16 some) {
  const __m512i low = _mm512_maskz_cvtepu16_epi32(some, _mm256_maskz_loadu_epi16(some, p));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(some, low, 16));
}

// The bits of sixteen bfloat16, each in the low half of its lane.
[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline __m512i rounded_bits(__m512 x) {
  constexpr __mmask16 all = 0xFFFF;
  const __m512i bits = _mm512_castps_si512(x),
                odd = _mm512_and_si512(_mm512_maskz_srli_epi32(all, bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7FFF));
  return _mm512_mask_mov_epi32(_mm512_maskz_srli_epi32(all, sum, 16), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q),
                               _mm512_set1_epi32(0x7FC0));
}

[[RLALGO_LANES, gnu::always_inline]] inline void store(float* p, __mmask16 some, __m512 x) {
  _mm512_mask_storeu_ps(p, some, x);
}
template <Bfloat16 T>
[[RLALGO_LANES, gnu::always_inline]] inline void store(T* p, __mmask16 some, __m512 x) {
  _mm256_mask_storeu_epi16(p, some, _mm512_maskz_cvtepi32_epi16(0xFFFF, rounded_bits(x)));
}

// x as memory of type T would give it back.
template <class T>
[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline __m512 rounded(__m512 x) {
  if constexpr (sizeof(T) == sizeof(float))
    return x;
  else
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, rounded_bits(x), 16));
}

// e^x by range reduction to |r| ≤ ln2/2 and a degree-6 polynomial (Cephes expf); relative error below 2 ulp. Results below the
// smallest normal number are 0; NaN stays NaN.
[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline __m512 exp(__m512 x) {
  constexpr __mmask16 all = 0xFFFF;
  x = _mm512_maskz_min_ps(all, _mm512_set1_ps(88.3762626647950f), x);
  const __mmask16 normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.33654f), _CMP_NLE_UQ);
  const __m512 n = _mm512_maskz_roundscale_ps(all, _mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)),
                                              _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
  return _mm512_maskz_scalef_ps(normal, p, n);
}

// tanh x as a quotient of polynomials in x² (figures: Eigen 3.4, ptanh_float); relative error below 6 ulp. |x| beyond 7.9 gives ±1.
[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline __m512 tanh(__m512 x) {
  constexpr __mmask16 all = 0xFFFF;
  x = _mm512_maskz_max_ps(all, _mm512_set1_ps(-7.90531110763549805f),
                          _mm512_maskz_min_ps(all, _mm512_set1_ps(7.90531110763549805f), x));
  const __m512 square = _mm512_mul_ps(x, x);
  __m512 p = _mm512_set1_ps(-2.76076847742355e-16f);
  for (const float next : {2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f, 1.48572235717979e-05f,
                           6.37261928875436e-04f, 4.89352455891786e-03f})
    p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(next));
  __m512 q = _mm512_set1_ps(1.19825839466702e-06f);
  for (const float next : {1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f})
    q = _mm512_fmadd_ps(q, square, _mm512_set1_ps(next));
  return _mm512_div_ps(_mm512_mul_ps(x, p), q);
}

// The lower eight lanes (0) or the upper ones (1).
template <int Which>
[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline __m256 half(__m512 x) {
  return _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xF, _mm512_castps_pd(x), Which));
}

[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline float sum(__m512 x) {
  const __m256 eight = _mm256_add_ps(half<0>(x), half<1>(x));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline float largest(__m512 x) {
  const __m256 eight = _mm256_max_ps(half<0>(x), half<1>(x));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

}  // namespace lanes

#endif

}  // namespace rlalgo::cpu
