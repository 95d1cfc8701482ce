// y = x Wᵀ for few rows of x, with AVX2 and FMA: the weights are read once, as they lie in memory.
//
// A tile is 4 rows of W by 3 rows of x: twelve running sums of eight lanes, which is what hides the latency of the
// multiply-add and lets a step of eight columns cost 7 loads for 12 multiply-adds. W's tile stays in L1 while the rows
// of x pass by, and the next tile is prefetched meanwhile. k is cut into blocks so that a tile of W and the rows of x
// fit. The sum of one output depends on k only: eight lanes over each block, added pairwise, blocks in order.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include <rlalgo/inference/detail/kernels.hpp>

namespace rlalgo::inference::detail::avx2 {

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

// y[i, n] (+)= Σ_j x[i, j] w[n, j] over one block of k: `Rows` rows of x, `Columns` rows of W.
template <int Columns, int Rows, class W>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void tile(const float* x, std::int64_t ldx, const W* w,
                                                                 std::int64_t ldw, std::int64_t k, float* y,
                                                                 std::int64_t ldy, bool add) {
  __m256 sum[Rows][Columns];
  for (int i = 0; i < Rows; ++i)
    for (int n = 0; n < Columns; ++n) sum[i][n] = _mm256_setzero_ps();
  std::int64_t j = 0;
  for (; j + lane <= k; j += lane) {
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
  for (int i = 0; i < Rows; ++i) {
    float* const row = y + i * ldy;
    if constexpr (Columns == 1) {
      const float s = sum_lanes(sum[i][0]);
      row[0] = add ? row[0] + s : s;
    } else {
      static_assert(Columns % 4 == 0);
      for (int n = 0; n < Columns; n += 4) {
        __m128 s = sum_lanes(sum[i][n], sum[i][n + 1], sum[i][n + 2], sum[i][n + 3]);
        if (add) s = _mm_add_ps(_mm_loadu_ps(row + n), s);
        _mm_storeu_ps(row + n, s);
      }
    }
  }
}

// Prefetches `columns` pieces of `lines` cache lines, a few lines at each call.
struct Prefetch {
  const char* piece;
  std::int64_t stride;  // bytes from piece to piece
  std::int64_t lines;
  std::int64_t columns;
  std::int64_t line = 0;
  [[gnu::always_inline]] void next(std::int64_t count) {
    for (; count > 0 && columns > 0; --count) {
      __builtin_prefetch(piece + line * 64);
      if (++line < lines) continue;
      line = 0;
      --columns;
      piece += stride;
    }
  }
};

// `Columns` rows of W from n on, against all rows of x, over all of k.
template <int Columns, class W>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void strip(const LinearArgs& a, const W* w, float* y,
                                                                  std::int64_t block) {
  // m = 3·threes + 2·twos + ones: a single leftover row would halve the speed of its tile, two pairs do not.
  const std::int64_t threes = a.m % 3 == 1 && a.m > 1 ? a.m / 3 - 1 : a.m / 3;
  const std::int64_t tiles = threes + (a.m - 3 * threes + 1) / 2;
  for (std::int64_t begin = 0; begin < a.k; begin += block) {
    const std::int64_t k = std::min(block, a.k - begin);
    const W* const from = begin + k < a.k ? w + begin + k : w + Columns * a.k;  // what comes next
    const std::int64_t lines = (k * static_cast<std::int64_t>(sizeof(W)) + 63) / 64;
    Prefetch prefetch{reinterpret_cast<const char*>(from), a.k * static_cast<std::int64_t>(sizeof(W)), lines, Columns};
    const std::int64_t share = (lines * Columns + tiles - 1) / tiles;
    const float* x = a.x + begin;
    float* out = y;
    const bool add = begin > 0;
    std::int64_t left = a.m;
    for (std::int64_t t = 0; t < threes; ++t, left -= 3, x += 3 * a.ldx, out += 3 * a.ldy) {
      prefetch.next(share);
      tile<Columns, 3>(x, a.ldx, w + begin, a.k, k, out, a.ldy, add);
    }
    for (; left >= 2; left -= 2, x += 2 * a.ldx, out += 2 * a.ldy) {
      prefetch.next(share);
      tile<Columns, 2>(x, a.ldx, w + begin, a.k, k, out, a.ldy, add);
    }
    if (left == 1) {
      prefetch.next(share);
      tile<Columns, 1>(x, a.ldx, w + begin, a.k, k, out, a.ldy, add);
    }
  }
}

// One row of x: eight rows of W at a time, which memory bandwidth limits anyway.
template <class W>
[[gnu::target("avx2,fma")]] inline void linear_row(const LinearArgs& a, const W* w, std::int64_t block) {
  std::int64_t n = a.begin;
  for (; n + 8 <= a.end; n += 8)
    for (std::int64_t begin = 0; begin < a.k; begin += block)
      tile<8, 1>(a.x + begin, a.ldx, w + n * a.k + begin, a.k, std::min(block, a.k - begin), a.y + n - a.begin, a.ldy,
                 begin > 0);
  for (; n < a.end; ++n)
    for (std::int64_t begin = 0; begin < a.k; begin += block)
      tile<1, 1>(a.x + begin, a.ldx, w + n * a.k + begin, a.k, std::min(block, a.k - begin), a.y + n - a.begin, a.ldy,
                 begin > 0);
}

template <class W>
[[gnu::target("avx2,fma")]] inline void linear(const LinearArgs& a) {
  constexpr std::int64_t largest_block = 640;
  const std::int64_t blocks = (a.k + largest_block - 1) / largest_block;
  const std::int64_t block = ((a.k + blocks - 1) / blocks + lane - 1) / lane * lane;
  const W* const w = static_cast<const W*>(a.w);
  if (a.m == 1) return linear_row(a, w, block);
  std::int64_t n = a.begin;
  for (; n + 4 <= a.end; n += 4) strip<4>(a, w + n * a.k, a.y + n - a.begin, block);
  for (; n < a.end; ++n) strip<1>(a, w + n * a.k, a.y + n - a.begin, block);
}

}  // namespace rlalgo::inference::detail::avx2

#endif
