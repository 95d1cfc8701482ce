// y = x Wᵀ with AVX-512, for f32 weights and for bfloat16 ones, which are widened; all else as with AVX2, to the bit.
//
// A tile is 4 rows of W by 6 rows of x: 24 running sums of sixteen lanes, 10 loads for 24 multiply-adds. A block is
// summed in sixteen lanes, added pairwise. (Every loop over the sums is unrolled: one that is not keeps
// them in memory and halves the speed.)
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include <rlalgo/inference/detail/avx2_kernels.hpp>
#include <rlalgo/inference/detail/kernels.hpp>
#include <rlalgo/inference/detail/linear_strips.hpp>

namespace rlalgo::inference::detail::avx512 {

#define RLALGO_AVX512 gnu::target("avx2,fma,avx512f,avx512bw,avx512vl")

// The sum of the upper and the lower eight lanes. (maskz: g++ 12 warns of its own header in the forms without.)
[[RLALGO_AVX512, gnu::always_inline]] inline __m256 halves(__m512 a) {
  const __m512d lanes = _mm512_castps_pd(a);
  return _mm256_add_ps(_mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xF, lanes, 0)),
                       _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xF, lanes, 1)));
}

// The elements that `some` names, the others 0.
[[RLALGO_AVX512, gnu::always_inline]] inline __m512 load(const float* p, __mmask16 some) {
  return _mm512_maskz_loadu_ps(some, p);
}
[[RLALGO_AVX512, gnu::always_inline]] inline __m512 load(const avx2::Bf16* p, __mmask16 some) {
  const __m512i bits = _mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_maskz_loadu_epi16(some, p));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, bits, 16));
}

template <class Weight>
struct Tile {
  using X = float;
  using W = Weight;
  static constexpr std::int64_t columns_of_k = 16, largest_block = 640;
  static constexpr int rows = 6;

  template <int Columns, int Rows, int Lines>
  [[RLALGO_AVX512]] static void multiply(const float* x, std::int64_t ldx, const W* w, std::int64_t ldw, std::int64_t k,
                                         float* y, std::int64_t ldy, bool add, const char* ahead) {
    if constexpr (Rows == 1 && Columns > 1) return multiply_row<Columns>(x, w, ldw, k, y, add);
    __m512 sum[Rows][Columns];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) sum[i][n] = _mm512_setzero_ps();
    std::int64_t j = 0;
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
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      __m256 half[Columns];
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) half[n] = halves(sum[i][n]);
      avx2::store_sums<Columns>(half, y + i * ldy, add);
    }
  }

 private:
  // The same sums for one row of x, W in the order of memory.
  template <int Columns>
  [[RLALGO_AVX512]] static void multiply_row(const float* x, const W* w, std::int64_t ldw, std::int64_t k, float* y,
                                             bool add) {
    __m256 half[Columns];
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n) {
      const W* const row = w + n * ldw;
      __m512 sum = _mm512_setzero_ps();
      std::int64_t j = 0;
      for (; j + columns_of_k <= k; j += columns_of_k) {
        prefetch<1>(reinterpret_cast<const char*>(row + j) + prefetch_distance);
        sum = _mm512_fmadd_ps(load(x + j, 0xFFFF), load(row + j, 0xFFFF), sum);
      }
      if (j < k) {
        const auto some = static_cast<__mmask16>((1U << (k - j)) - 1);
        sum = _mm512_fmadd_ps(load(x + j, some), load(row + j, some), sum);
      }
      half[n] = halves(sum);
    }
    avx2::store_sums<Columns>(half, y, add);
  }
};

#undef RLALGO_AVX512

template <class W>
inline void linear(const LinearArgs& a) {
  LinearStrips<Tile<W>>(a, a.x, a.ldx).run();
}

inline constexpr Kernels kernels = [] {
  Kernels all = avx2::kernels;
  all.name = "avx512";
  all.linear_f32 = linear<float>;
  all.linear_bf16 = linear<avx2::Bf16>;
  return all;
}();

[[nodiscard]] inline bool supported() {
  return avx2::supported() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

}  // namespace rlalgo::inference::detail::avx512

#endif
