// Sixteen rows of sixteen elements of four bytes, transposed in registers of AVX-512.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

namespace rlalgo::cpu::avx512 {

// Lane n of rows[i] becomes lane i of rows[n].
[[gnu::target("avx512f"), gnu::always_inline]] inline void transpose(__m512 (&rows)[16]) {
  constexpr __mmask16 all = 0xFFFF;  // (maskz: g++ 12 warns of its own header in the forms without.)
  constexpr __mmask8 pairs = 0xFF;
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_maskz_unpacklo_ps(all, rows[i], rows[i + 1]);
    t[i + 1] = _mm512_maskz_unpackhi_ps(all, rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {  // then quarter q of rows[i + c] is column 4 q + c of rows i to i + 3
    const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]);
    const __m512d c = _mm512_castps_pd(t[i + 2]), d = _mm512_castps_pd(t[i + 3]);
    rows[i] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(pairs, a, c));
    rows[i + 1] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(pairs, a, c));
    rows[i + 2] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(pairs, b, d));
    rows[i + 3] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(pairs, b, d));
  }
  constexpr int even = 0x88, odd = 0xDD;
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 a = _mm512_maskz_shuffle_f32x4(all, rows[c], rows[4 + c], even);
    const __m512 b = _mm512_maskz_shuffle_f32x4(all, rows[8 + c], rows[12 + c], even);
    const __m512 d = _mm512_maskz_shuffle_f32x4(all, rows[c], rows[4 + c], odd);
    const __m512 e = _mm512_maskz_shuffle_f32x4(all, rows[8 + c], rows[12 + c], odd);
    t[c] = _mm512_maskz_shuffle_f32x4(all, a, b, even);
    t[4 + c] = _mm512_maskz_shuffle_f32x4(all, d, e, even);
    t[8 + c] = _mm512_maskz_shuffle_f32x4(all, a, b, odd);
    t[12 + c] = _mm512_maskz_shuffle_f32x4(all, d, e, odd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = t[i];
}

}  // namespace rlalgo::cpu::avx512

#endif
