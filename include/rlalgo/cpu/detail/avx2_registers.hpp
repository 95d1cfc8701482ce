// Registers of AVX2 with FMA: eight floats. plain_registers.hpp says what the operations do.
#pragma once

#include <rlalgo/cpu/detail/instruction_set.hpp>

#if defined(__x86_64__)

RLALGO_CPU_BEGIN("avx2,fma")
namespace rlalgo::cpu::avx2 {

inline constexpr std::int64_t count = 8;

using Floats = __m256;
struct Some {
  __m256i lanes;
  std::int64_t n;
};

RLALGO_CPU_OPERATION Some first(std::int64_t n) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(std::min(n, count))), index), n};
}

RLALGO_CPU_OPERATION Floats all(float x) { return _mm256_set1_ps(x); }
RLALGO_CPU_OPERATION Floats zeros() { return _mm256_setzero_ps(); }
RLALGO_CPU_OPERATION Floats load(const float* p) { return _mm256_loadu_ps(p); }
RLALGO_CPU_OPERATION Floats load(const std::uint16_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
RLALGO_CPU_OPERATION Floats load(const float* p, Some some) { return _mm256_maskload_ps(p, some.lanes); }
RLALGO_CPU_OPERATION Floats load(const std::uint16_t* p, Some some) {
  std::uint16_t bits[count] = {};
  std::copy_n(p, std::min(some.n, count), bits);
  return load(bits);
}
RLALGO_CPU_OPERATION void store(float* p, Floats x) { _mm256_storeu_ps(p, x); }
RLALGO_CPU_OPERATION void store(float* p, Some some, Floats x) { _mm256_maskstore_ps(p, some.lanes, x); }

RLALGO_CPU_OPERATION Floats product(Floats x, Floats y) {
  Floats out = _mm256_mul_ps(x, y);
  asm("" : "+x"(out));
  return out;
}
RLALGO_CPU_OPERATION float fma(float x, float y, float z) { return std::fma(x, y, z); }
RLALGO_CPU_OPERATION float fnma(float x, float y, float z) { return std::fma(-x, y, z); }
RLALGO_CPU_OPERATION Floats fma(Floats x, Floats y, Floats z) { return _mm256_fmadd_ps(x, y, z); }
RLALGO_CPU_OPERATION Floats fnma(Floats x, Floats y, Floats z) { return _mm256_fnmadd_ps(x, y, z); }
RLALGO_CPU_OPERATION Floats larger(Floats x, Floats y) { return _mm256_max_ps(x, y); }
RLALGO_CPU_OPERATION Floats smaller(Floats x, Floats y) { return _mm256_min_ps(x, y); }
RLALGO_CPU_OPERATION Floats pick(Some some, Floats x, Floats y) {
  return _mm256_blendv_ps(y, x, _mm256_castsi256_ps(some.lanes));
}
RLALGO_CPU_OPERATION Floats keep(Some some, Floats x) { return _mm256_and_ps(_mm256_castsi256_ps(some.lanes), x); }
RLALGO_CPU_OPERATION Floats nearest(Floats x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
RLALGO_CPU_OPERATION Floats scaled_above(Floats x, float limit, Floats p, Floats n) {
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(_mm256_cmp_ps(x, all(limit), _CMP_NLE_UQ), _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)) of each of four registers.
RLALGO_CPU_OPERATION __m128 sums(Floats a, Floats b, Floats c, Floats d) {
  const Floats t = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}
RLALGO_CPU_OPERATION float sum(Floats x) { return _mm_cvtss_f32(sums(x, x, x, x)); }
RLALGO_CPU_OPERATION float largest(Floats x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

template <int Columns, int Rows>
RLALGO_CPU_OPERATION void store_sums(const Floats (&sum_of)[Rows][Columns], float* y, std::int64_t ldy, bool adds) {
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i, y += ldy) {
    if constexpr (Columns == 1) {
      const float s = sum(sum_of[i][0]);
      *y = adds ? *y + s : s;
    } else {
      static_assert(Columns % 4 == 0);
#pragma GCC unroll 8
      for (int n = 0; n < Columns; n += 4) {
        __m128 s = sums(sum_of[i][n], sum_of[i][n + 1], sum_of[i][n + 2], sum_of[i][n + 3]);
        if (adds) s = _mm_add_ps(_mm_loadu_ps(y + n), s);
        _mm_storeu_ps(y + n, s);
      }
    }
  }
}

}  // namespace rlalgo::cpu::avx2
RLALGO_CPU_END

#endif
