// A block of yᵀ as AMX leaves it, stored as rows of y.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include <rlalgo/cpu/transpose.hpp>

namespace rlalgo::cpu {

#define RLALGO_AVX512 gnu::target("avx2,fma,avx512f,avx512bw,avx512vl")

// y[i, n] = from[n, i] for `rows` (1 to 16) of i and `columns` (1 to 16) of n; from is 16 × 16, the row stride of y is `ldy`.
[[RLALGO_AVX512]] inline void store_transposed(const float* from, std::int64_t rows, std::int64_t columns, float* y,
                                               std::int64_t ldy) {
  const auto some = static_cast<__mmask16>((1U << columns) - 1);
  if (rows == 1) {
    const __m512i stride =
        _mm512_maskz_slli_epi32(0xFFFF, _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0), 4);
    return _mm512_mask_storeu_ps(y, some, _mm512_mask_i32gather_ps(_mm512_setzero_ps(), some, stride, from, 4));
  }
  __m512 t[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) t[i] = _mm512_loadu_ps(from + 16 * i);
  avx512::transpose(t);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    if (i < rows) _mm512_mask_storeu_ps(y + i * ldy, some, t[i]);
}

#undef RLALGO_AVX512

}  // namespace rlalgo::cpu

#endif
