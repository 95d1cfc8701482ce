// y = x Wᵀ for few rows of x, with AVX2 and FMA. A tile is 4 rows of W by 3 rows of x: twelve running sums of eight
// lanes, which is what hides the latency of the multiply-add and lets a step of eight columns cost 7 loads for 12
// multiply-adds. A block is summed in eight lanes, added pairwise.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu::avx2 {

struct Bf16 {
  std::uint16_t bits;
};

[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 load(const float* p) { return _mm256_loadu_ps(p); }
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 load(const Bf16* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// The first `count` (< 8) lanes, the others 0.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256i first_lanes(std::int64_t count) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
}
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 load_first(const float* p, std::int64_t count) {
  return _mm256_maskload_ps(p, first_lanes(count));
}
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 load_first(const Bf16* p, std::int64_t count) {
  Bf16 lanes[lane] = {};
  std::copy_n(p, count, lanes);
  return load(lanes);
}

// ((0+1)+(2+3)) + ((4+5)+(6+7)) of each of four registers.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m128 sum_lanes(__m256 a, __m256 b, __m256 c, __m256 d) {
  const __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}
[[gnu::target("avx2,fma"), gnu::always_inline]] inline float sum_lanes(__m256 a) {
  return _mm_cvtss_f32(sum_lanes(a, a, a, a));
}

// row[n] (+)= the sum of the lanes of sum[n].
template <int Columns>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void store_sums(const __m256* sum, float* row, bool add) {
  if constexpr (Columns == 1) {
    const float s = sum_lanes(sum[0]);
    row[0] = add ? row[0] + s : s;
  } else {
    static_assert(Columns % 4 == 0);
    for (int n = 0; n < Columns; n += 4) {
      __m128 s = sum_lanes(sum[n], sum[n + 1], sum[n + 2], sum[n + 3]);
      if (add) s = _mm_add_ps(_mm_loadu_ps(row + n), s);
      _mm_storeu_ps(row + n, s);
    }
  }
}

template <class Weight>
struct Tile {
  using X = float;
  using W = Weight;
  static constexpr std::int64_t columns_of_k = lane, largest_block = 640;
  static constexpr int rows = 3;

  template <int Columns, int Rows, int Lines>
  [[gnu::target("avx2,fma")]] static void multiply(const float* x, std::int64_t ldx, const W* w, std::int64_t ldw,
                                                   std::int64_t k, float* y, std::int64_t ldy, bool add,
                                                   const char* ahead) {
    __m256 sum[Rows][Columns];
    for (int i = 0; i < Rows; ++i)
      for (int n = 0; n < Columns; ++n) sum[i][n] = _mm256_setzero_ps();
    std::int64_t j = 0;
    for (; j + lane <= k; j += lane, ahead += Lines * cache_line) {
      prefetch<Lines>(ahead);
      __m256 xs[Rows];
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) xs[i] = _mm256_loadu_ps(x + i * ldx + j);
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) {
        const __m256 ws = load(w + n * ldw + j);
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) sum[i][n] = _mm256_fmadd_ps(xs[i], ws, sum[i][n]);
      }
    }
    if (j < k)
      for (int n = 0; n < Columns; ++n) {
        const __m256 ws = load_first(w + n * ldw + j, k - j);
        for (int i = 0; i < Rows; ++i) sum[i][n] = _mm256_fmadd_ps(load_first(x + i * ldx + j, k - j), ws, sum[i][n]);
      }
    for (int i = 0; i < Rows; ++i) store_sums<Columns>(sum[i], y + i * ldy, add);
  }

  template <int Columns>
  [[gnu::target("avx2,fma")]] static void multiply_row(const float* x, const W* w, std::int64_t ldw, std::int64_t k,
                                                       float* y, bool add) {
    __m256 sum[Columns];
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n) {
      const W* const row = w + n * ldw;
      sum[n] = _mm256_setzero_ps();
      std::int64_t j = 0;
      for (; j + lane <= k; j += lane) {
        prefetch<1>(reinterpret_cast<const char*>(row + j) + prefetch_distance);
        sum[n] = _mm256_fmadd_ps(_mm256_loadu_ps(x + j), load(row + j), sum[n]);
      }
      if (j < k) sum[n] = _mm256_fmadd_ps(load_first(x + j, k - j), load_first(row + j, k - j), sum[n]);
    }
    store_sums<Columns>(sum, y, add);
  }
};

template <class W>
inline void linear(const LinearArgs& a) {
  LinearStrips<Tile<W>>(a, a.x, a.ldx).run();
}

}  // namespace rlalgo::cpu::avx2

#endif
