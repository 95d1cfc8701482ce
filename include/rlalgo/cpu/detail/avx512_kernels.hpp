// AVX-512: float32 weights by panels of rows (avx512_panels.hpp), bfloat16 ones widened; norms and attention as with AVX2, to the bit.
//
// A tile of widened weights is 4 rows of W by 6 rows of x: 24 running sums of sixteen lanes, 10 loads for 24 multiply-adds. A block is
// summed in sixteen lanes, added pairwise. Four steps of a tile stand in a row, since its loop is too short for the processor to see its end
// coming. (Every loop over the sums is unrolled: one that is not keeps
// them in memory and halves the speed.)
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <limits>
#include <utility>

#include <rlalgo/cpu/detail/avx2_kernels.hpp>
#include <rlalgo/cpu/detail/avx512_attention.hpp>
#include <rlalgo/cpu/detail/avx512_panels.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/lanes.hpp>

namespace rlalgo::cpu::avx512 {

#define RLALGO_AVX512 gnu::target("avx2,fma,avx512f,avx512bw,avx512vl")

// Quarter q of the result has the sums of quarter q of a, b, c and d. (maskz: g++ 12 warns of its own header in the forms without.)
[[RLALGO_AVX512, gnu::always_inline]] inline __m512 quarter_sums(__m512 a, __m512 b, __m512 c, __m512 d) {
  constexpr __mmask16 all = 0xFFFF;
  const __m512 ab = _mm512_add_ps(_mm512_maskz_unpacklo_ps(all, a, b), _mm512_maskz_unpackhi_ps(all, a, b));
  const __m512 cd = _mm512_add_ps(_mm512_maskz_unpacklo_ps(all, c, d), _mm512_maskz_unpackhi_ps(all, c, d));
  const __m512d ab_pairs = _mm512_castps_pd(ab), cd_pairs = _mm512_castps_pd(cd);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xFF, ab_pairs, cd_pairs)),
                       _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xFF, ab_pairs, cd_pairs)));
}

// Quarter q of the result is the sum of the quarters of the q-th argument.
[[RLALGO_AVX512, gnu::always_inline]] inline __m512 sums_of_quarters(__m512 a, __m512 b, __m512 c, __m512 d) {
  constexpr __mmask16 all = 0xFFFF;
  constexpr int even = 0x88, odd = 0xDD;
  const __m512 ab =
      _mm512_add_ps(_mm512_maskz_shuffle_f32x4(all, a, b, even), _mm512_maskz_shuffle_f32x4(all, a, b, odd));
  const __m512 cd =
      _mm512_add_ps(_mm512_maskz_shuffle_f32x4(all, c, d, even), _mm512_maskz_shuffle_f32x4(all, c, d, odd));
  return _mm512_add_ps(_mm512_maskz_shuffle_f32x4(all, ab, cd, even), _mm512_maskz_shuffle_f32x4(all, ab, cd, odd));
}

template <int Quarter>
[[RLALGO_AVX512, gnu::always_inline]] inline void store_quarter(__m512 sums, float* to, bool add) {
  __m128 s = _mm512_maskz_extractf32x4_ps(0xF, sums, Quarter);
  if (add) s = _mm_add_ps(_mm_loadu_ps(to), s);
  _mm_storeu_ps(to, s);
}

// y[i, n] (+)= the sum of the lanes of sum[i][n], which has the same order wherever it stands.
template <int Columns, int Rows>
[[RLALGO_AVX512, gnu::always_inline]] inline void store_sums(const __m512 (&sum)[Rows][Columns], float* y,
                                                             std::int64_t ldy, bool add) {
  if constexpr (Columns == 1) {
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const __m512 quarters = quarter_sums(sum[i][0], sum[i][0], sum[i][0], sum[i][0]);
      const float s = _mm512_cvtss_f32(sums_of_quarters(quarters, quarters, quarters, quarters));
      y[i * ldy] = add ? y[i * ldy] + s : s;
    }
  } else {
    static_assert(Columns % 4 == 0);
    constexpr int in_a_row = Columns / 4, parts = Rows * in_a_row;
    __m512 part[parts];
#pragma GCC unroll 8
    for (int p = 0; p < parts; ++p) {
      const __m512* const of = sum[p / in_a_row] + 4 * (p % in_a_row);
      part[p] = quarter_sums(of[0], of[1], of[2], of[3]);
    }
#pragma GCC unroll 8
    for (int p = 0; p < parts; p += 4) {
      const int b = p + 1 < parts ? p + 1 : p, c = p + 2 < parts ? p + 2 : p, d = p + 3 < parts ? p + 3 : b;
      const __m512 sums = sums_of_quarters(part[p], part[b], part[c], part[d]);
      const auto to = [&](int q) { return y + (q / in_a_row) * ldy + 4 * (q % in_a_row); };
      store_quarter<0>(sums, to(p), add);
      if (p + 1 < parts) store_quarter<1>(sums, to(p + 1), add);
      if (p + 2 < parts) store_quarter<2>(sums, to(p + 2), add);
      if (p + 3 < parts) store_quarter<3>(sums, to(p + 3), add);
    }
  }
}

// The elements that `some` names, the others 0.
[[RLALGO_AVX512, gnu::always_inline]] inline __m512 load(const float* p, __mmask16 some) {
  return _mm512_maskz_loadu_ps(some, p);
}
[[RLALGO_AVX512, gnu::always_inline]] inline __m512 load(const avx2::Bf16* p, __mmask16 some) {
  const __m512i bits = _mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_maskz_loadu_epi16(some, p));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, bits, 16));
}

// gate·σ(a)·up with a = gate, or that of gelu
template <bool gelu>
[[RLALGO_AVX512]] inline void gated_multiply(float* gate, const float* up, std::int64_t n) {
  namespace lanes = lanes;
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    const __m512 x = lanes::load(gate + j, some);
    __m512 a = x;
    if constexpr (gelu)
      a = _mm512_mul_ps(x, _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(gelu_cube), _mm512_set1_ps(gelu_root)));
    const __m512 e = lanes::exp(_mm512_sub_ps(_mm512_setzero_ps(), a));
    const __m512 active = _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
    lanes::store(gate + j, some, _mm512_mul_ps(active, lanes::load(up + j, some)));
  }
}

[[RLALGO_AVX512]] inline MaxResult maximum(const float* x, std::int64_t n) {
  namespace lanes = lanes;
  __m512 top = _mm512_set1_ps(-std::numeric_limits<float>::infinity()), zero = _mm512_setzero_ps();
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    const __m512 v = lanes::load(x + j, some);
    top = _mm512_mask_max_ps(top, some, top, v);
    zero = _mm512_fmadd_ps(v, _mm512_setzero_ps(), zero);  // Σ 0·x: NaN as soon as one x is not finite
  }
  return {lanes::largest(top), lanes::sum(zero) == 0.0f};
}

[[RLALGO_AVX512]] inline float exp_sum(const float* x, float shift, float scale, float* out, std::int64_t n) {
  namespace lanes = lanes;
  const __m512 s = _mm512_set1_ps(shift), f = _mm512_set1_ps(scale);
  __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    const __m512 e = lanes::exp(_mm512_mul_ps(_mm512_sub_ps(lanes::load(x + j, some), s), f));
    if (out != nullptr) lanes::store(out + j, some, e);
    sum[1] = _mm512_mask_add_ps(sum[1], some, sum[1], e);
    std::swap(sum[0], sum[1]);
  }
  return lanes::sum(_mm512_add_ps(sum[0], sum[1]));
}

struct Tile {
  using X = float;
  using W = avx2::Bf16;
  static constexpr std::int64_t columns_of_k = 16, largest_block = 640;
  static constexpr int rows = 6;

  template <int Columns, int Rows, int Lines>
  [[RLALGO_AVX512]] static void multiply(const float* x, std::int64_t ldx, const W* w, std::int64_t ldw, std::int64_t k,
                                         float* y, std::int64_t ldy, bool add, const char* ahead) {
    __m512 sum[Rows][Columns];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) sum[i][n] = _mm512_setzero_ps();
    std::int64_t j = 0;
#pragma GCC unroll 4
    for (; j + columns_of_k <= k; j += columns_of_k, ahead += Lines * cache_line) {
      prefetch<Lines>(ahead);
      __m512 ws[Columns];
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) ws[n] = load(w + n * ldw + j, 0xFFFF);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        const __m512 xs = load(x + i * ldx + j, 0xFFFF);
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) sum[i][n] = _mm512_fmadd_ps(xs, ws[n], sum[i][n]);
      }
    }
    if (j < k) {
      const auto some = static_cast<__mmask16>((1U << (k - j)) - 1);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n)
          sum[i][n] = _mm512_fmadd_ps(load(x + i * ldx + j, some), load(w + n * ldw + j, some), sum[i][n]);
    }
    store_sums<Columns, Rows>(sum, y, ldy, add);
  }

  template <int Columns>
  [[RLALGO_AVX512]] static void multiply_row(const float* x, const W* w, std::int64_t ldw, std::int64_t k, float* y,
                                             bool add) {
    __m512 sum[1][Columns];
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n) {
      const W* const row = w + n * ldw;
      __m512 s = _mm512_setzero_ps();
      std::int64_t j = 0;
      for (; j + columns_of_k <= k; j += columns_of_k) {
        prefetch<1>(reinterpret_cast<const char*>(row + j) + prefetch_distance);
        s = _mm512_fmadd_ps(load(x + j, 0xFFFF), load(row + j, 0xFFFF), s);
      }
      if (j < k) {
        const auto some = static_cast<__mmask16>((1U << (k - j)) - 1);
        s = _mm512_fmadd_ps(load(x + j, some), load(row + j, some), s);
      }
      sum[0][n] = s;
    }
    store_sums<Columns, 1>(sum, y, 0, add);
  }
};

#undef RLALGO_AVX512

inline void linear_f32(const LinearArgs& a) { PanelProduct(a).run(); }
inline void linear_bf16(const LinearArgs& a) { LinearStrips<Tile>(a, a.x, a.ldx).run(); }

inline constexpr Kernels kernels = [] {
  Kernels all = avx2::kernels;
  all.name = "avx512";
  all.linear_f32 = linear_f32;
  all.linear_bf16 = linear_bf16;
  all.attention = attention;
  all.silu_multiply = gated_multiply<false>;
  all.gelu_tanh_multiply = gated_multiply<true>;
  all.maximum = maximum;
  all.exp_sum = exp_sum;
  // Panels of fewer rows are slower where a core multiplies two registers at a time.
  all.rows_apart_f32 = widest_panel;
  return all;
}();

[[nodiscard]] inline bool supported() {
  return avx2::supported() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace rlalgo::cpu::avx512

#endif
