// A block of yᵀ as AMX leaves it, stored as rows of y; and its inverse use, rows of x brought into pairs of columns.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

namespace rlalgo::inference::detail {

#define RLALGO_AVX512 gnu::target("avx2,fma,avx512f,avx512bw,avx512vl")

// rows[i] lane n = rows[n] lane i of before, for 16 × 16 elements of 32 bits.
[[RLALGO_AVX512, gnu::always_inline]] inline void turn(__m512 (&rows)[16]) {
  constexpr __mmask16 all = 0xFFFF;  // (maskz: g++ 12 warns of its own header in the forms without.)
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_maskz_unpacklo_ps(all, rows[2 * i], rows[2 * i + 1]);
    t[2 * i + 1] = _mm512_maskz_unpackhi_ps(all, rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // then quarter q of rows[4i + c] is column 4q + c of rows 4i … 4i + 3
    const __m512d a = _mm512_castps_pd(t[4 * i]), b = _mm512_castps_pd(t[4 * i + 1]),
                  c = _mm512_castps_pd(t[4 * i + 2]), d = _mm512_castps_pd(t[4 * i + 3]);
    rows[4 * i] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xFF, a, c));
    rows[4 * i + 1] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xFF, a, c));
    rows[4 * i + 2] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xFF, b, d));
    rows[4 * i + 3] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xFF, b, d));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    constexpr int even = 0x88, odd = 0xDD;
    const __m512 a = _mm512_maskz_shuffle_f32x4(all, rows[c], rows[4 + c], even),
                 b = _mm512_maskz_shuffle_f32x4(all, rows[8 + c], rows[12 + c], even),
                 d = _mm512_maskz_shuffle_f32x4(all, rows[c], rows[4 + c], odd),
                 e = _mm512_maskz_shuffle_f32x4(all, rows[8 + c], rows[12 + c], odd);
    t[c] = _mm512_maskz_shuffle_f32x4(all, a, b, even);
    t[8 + c] = _mm512_maskz_shuffle_f32x4(all, a, b, odd);
    t[4 + c] = _mm512_maskz_shuffle_f32x4(all, d, e, even);
    t[12 + c] = _mm512_maskz_shuffle_f32x4(all, d, e, odd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = t[i];
}

// y[i, n] = from[n, i] for `rows` (1 to 16) of i and `columns` (1 to 16) of n; from is 16 × 16, the row stride of y is `ldy`.
[[RLALGO_AVX512]] inline void store_turned(const float* from, std::int64_t rows, std::int64_t columns, float* y,
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
  turn(t);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    if (i < rows) _mm512_mask_storeu_ps(y + i * ldy, some, t[i]);
}

#undef RLALGO_AVX512

}  // namespace rlalgo::inference::detail

#endif
