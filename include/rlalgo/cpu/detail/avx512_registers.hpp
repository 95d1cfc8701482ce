// Registers of AVX-512: those of lanes.hpp, how a product adds their lanes, and transposed ones. plain_registers.hpp says what the operations do.
#pragma once

#include <rlalgo/cpu/detail/instruction_set.hpp>
#include <rlalgo/cpu/lanes.hpp>
#include <rlalgo/cpu/transpose.hpp>

#if defined(__x86_64__)

RLALGO_CPU_BEGIN("avx2,fma,avx512f,avx512bw,avx512vl")
namespace rlalgo::cpu::avx512 {

using namespace lanes;

// Quarter q of the result has the sums of quarter q of a, b, c and d.
RLALGO_CPU_OPERATION Floats quarter_sums(Floats a, Floats b, Floats c, Floats d) {
  const Floats ab = _mm512_add_ps(_mm512_maskz_unpacklo_ps(all_lanes, a, b), _mm512_maskz_unpackhi_ps(all_lanes, a, b));
  const Floats cd = _mm512_add_ps(_mm512_maskz_unpacklo_ps(all_lanes, c, d), _mm512_maskz_unpackhi_ps(all_lanes, c, d));
  const __m512d ab_pairs = _mm512_castps_pd(ab), cd_pairs = _mm512_castps_pd(cd);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xFF, ab_pairs, cd_pairs)),
                       _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xFF, ab_pairs, cd_pairs)));
}

// Quarter q of the result is the sum of the quarters of the q-th argument.
RLALGO_CPU_OPERATION Floats sums_of_quarters(Floats a, Floats b, Floats c, Floats d) {
  constexpr int even = 0x88, odd = 0xDD;
  const Floats ab = _mm512_add_ps(_mm512_maskz_shuffle_f32x4(all_lanes, a, b, even),
                                  _mm512_maskz_shuffle_f32x4(all_lanes, a, b, odd));
  const Floats cd = _mm512_add_ps(_mm512_maskz_shuffle_f32x4(all_lanes, c, d, even),
                                  _mm512_maskz_shuffle_f32x4(all_lanes, c, d, odd));
  return _mm512_add_ps(_mm512_maskz_shuffle_f32x4(all_lanes, ab, cd, even),
                       _mm512_maskz_shuffle_f32x4(all_lanes, ab, cd, odd));
}

template <int Quarter>
RLALGO_CPU_OPERATION void store_quarter(Floats sums, float* to, bool adds) {
  __m128 s = _mm512_maskz_extractf32x4_ps(0xF, sums, Quarter);
  if (adds) s = _mm_add_ps(_mm_loadu_ps(to), s);
  _mm_storeu_ps(to, s);
}

// y[i, n] (+)= the sum of the lanes of sum[i][n], which has the same order wherever it stands.
template <int Columns, int Rows>
RLALGO_CPU_OPERATION void store_sums(const Floats (&sum)[Rows][Columns], float* y, std::int64_t ldy, bool adds) {
  if constexpr (Columns == 1) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const Floats quarters = quarter_sums(sum[i][0], sum[i][0], sum[i][0], sum[i][0]);
      const float s = _mm512_cvtss_f32(sums_of_quarters(quarters, quarters, quarters, quarters));
      y[i * ldy] = adds ? y[i * ldy] + s : s;
    }
  } else {
    static_assert(Columns % 4 == 0);
    constexpr int in_a_row = Columns / 4, parts = Rows * in_a_row;
    Floats part[parts];
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) {
      const __m512* const of = sum[p / in_a_row] + 4 * (p % in_a_row);
      part[p] = quarter_sums(of[0], of[1], of[2], of[3]);
    }
#pragma GCC unroll 8
    for (int p = 0; p < parts; p += 4) {
      const int b = p + 1 < parts ? p + 1 : p, c = p + 2 < parts ? p + 2 : p, d = p + 3 < parts ? p + 3 : b;
      const Floats sums = sums_of_quarters(part[p], part[b], part[c], part[d]);
      const auto to = [&](int q) { return y + (q / in_a_row) * ldy + 4 * (q % in_a_row); };
      store_quarter<0>(sums, to(p), adds);
      if (p + 1 < parts) store_quarter<1>(sums, to(p + 1), adds);
      if (p + 2 < parts) store_quarter<2>(sums, to(p + 2), adds);
      if (p + 3 < parts) store_quarter<3>(sums, to(p + 3), adds);
    }
  }
}

// r[j] = w[n, j] of sixteen rows n, for j < 4. Quarters of registers are put together as they are loaded, which leaves half of the shuffles that
// transposing whole rows takes.
RLALGO_CPU_OPERATION void load_columns(Floats (&r)[4], const float* w, std::int64_t ld) {
  constexpr __mmask8 pairs = 0xFF;
  Floats of[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // rows i, 4 + i, 8 + i, 12 + i
    const float* const row = w + i * ld;
    of[i] = _mm512_maskz_broadcast_f32x4(0x000F, _mm_loadu_ps(row));
    of[i] = _mm512_mask_broadcast_f32x4(of[i], 0x00F0, _mm_loadu_ps(row + 4 * ld));
    of[i] = _mm512_mask_broadcast_f32x4(of[i], 0x0F00, _mm_loadu_ps(row + 8 * ld));
    of[i] = _mm512_mask_broadcast_f32x4(of[i], 0xF000, _mm_loadu_ps(row + 12 * ld));
  }
  const __m512d a = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(all_lanes, of[0], of[1])),
                b = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(all_lanes, of[0], of[1])),
                c = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(all_lanes, of[2], of[3])),
                d = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(all_lanes, of[2], of[3]));
  r[0] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(pairs, a, c));
  r[1] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(pairs, a, c));
  r[2] = _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(pairs, b, d));
  r[3] = _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(pairs, b, d));
}

}  // namespace rlalgo::cpu::avx512
RLALGO_CPU_END

#endif
