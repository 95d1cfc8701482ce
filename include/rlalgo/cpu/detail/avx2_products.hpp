// The kernel of float32 with AVX2 and FMA for product_tiles.hpp: tiles of 6 × 16, which are 12 running sums, 2 loads and 6 broadcasts
// for 12 multiply-adds.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include <rlalgo/cpu/detail/product_tiles.hpp>

namespace rlalgo::cpu::avx2 {

using tiles::Destination;
using tiles::Strided;

#define RLALGO_AVX2 gnu::target("avx2,fma")

// out[c · ldo + r] = in[r · ldi + c] for 8 columns of `Rows` (6 or 8) rows.
template <int Rows>
[[RLALGO_AVX2]] inline void transpose(const float* in, std::int64_t ldi, float* out, std::int64_t ldo) {
  static_assert(Rows == 6 || Rows == 8);
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = i < Rows ? _mm256_loadu_ps(in + i * ldi) : _mm256_setzero_ps();
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  constexpr int low = 0x44, high = 0xEE;
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {  // r[i + j]: of rows i to i + 3 column j in the lower half, 4 + j in the upper
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], low);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], high);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], low);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], high);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    float* const lower = out + j * ldo;
    float* const upper = out + (4 + j) * ldo;
    _mm_storeu_ps(lower, _mm256_castps256_ps128(r[j]));
    _mm_storeu_ps(upper, _mm256_extractf128_ps(r[j], 1));
    if constexpr (Rows == 8) {
      _mm_storeu_ps(lower + 4, _mm256_castps256_ps128(r[4 + j]));
      _mm_storeu_ps(upper + 4, _mm256_extractf128_ps(r[4 + j], 1));
    } else {
      _mm_storel_pi(reinterpret_cast<__m64*>(lower + 4), _mm256_castps256_ps128(r[4 + j]));
      _mm_storel_pi(reinterpret_cast<__m64*>(upper + 4), _mm256_extractf128_ps(r[4 + j], 1));
    }
  }
}

struct Float32 {
  using Element = float;
  using Scope = tiles::Nothing;
  static constexpr std::int64_t per_step = 1, whole_steps = 1, block = 768, tile_rows = 6, tile_columns = 16;
  static constexpr bool own_rows = false;

  template <int Width>
  [[RLALGO_AVX2]] static void pack(const Strided<float>& x, std::int64_t count, std::int64_t k, float* out) {
    constexpr int part = Width < 8 ? Width : 8;
    std::int64_t j = 0;
    if (count == Width && x.rows == 1)
      for (; j < k; ++j) std::copy_n(x.at(0, j), Width, out + j * Width);
    else if (count == Width)
      for (; j + 8 <= k; j += 8)
        for (int i = 0; i < Width; i += part) transpose<part>(x.at(i, j), x.rows, out + j * Width + i, Width);
    for (; j < k; ++j)
      for (std::int64_t i = 0; i < Width; ++i) out[j * Width + i] = i < count ? *x.at(i, j) : 0.0f;
  }

  template <int Rows>
  [[RLALGO_AVX2]] static void tile(const float* a, const float* b, std::int64_t k, const Destination<float>& to,
                                   std::int64_t columns) {
    const bool adds = to.adds || !to.first;
    if (columns < tile_columns) {  // a whole tile elsewhere: an element is computed the same way wherever it lies
      float whole[Rows][tile_columns] = {};
      for (int i = 0; adds && i < Rows; ++i) std::copy_n(to.c + i * to.ldc, columns, whole[i]);
      tile<Rows>(a, b, k, {.c = whole[0], .ldc = tile_columns, .adds = adds, .alpha = to.alpha}, tile_columns);
      for (int i = 0; i < Rows; ++i) std::copy_n(whole[i], columns, to.c + i * to.ldc);
      return;
    }
    __m256 sum[Rows][2];
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    for (std::int64_t j = 0; j < k; ++j, a += tile_rows, b += tile_columns) {
      const __m256 b0 = _mm256_loadu_ps(b), b1 = _mm256_loadu_ps(b + 8);
#pragma GCC unroll 6
      for (int i = 0; i < Rows; ++i) {
        const __m256 x = _mm256_broadcast_ss(a + i);
        sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
        sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
      }
    }
    const __m256 factor = _mm256_set1_ps(to.alpha);
    float* c = to.c;
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i, c += to.ldc) {
      __m256 c0 = _mm256_mul_ps(sum[i][0], factor), c1 = _mm256_mul_ps(sum[i][1], factor);
      if (adds) {
        c0 = _mm256_add_ps(_mm256_loadu_ps(c), c0);
        c1 = _mm256_add_ps(_mm256_loadu_ps(c + 8), c1);
      }
      _mm256_storeu_ps(c, c0);
      _mm256_storeu_ps(c + 8, c1);
    }
  }
};

#undef RLALGO_AVX2

}  // namespace rlalgo::cpu::avx2

#endif
