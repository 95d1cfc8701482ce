// The kernel of float32 with AVX-512 for product_tiles.hpp: tiles of 12 × 32, which are 24 running sums, 2 loads and 12 broadcasts for
// 24 multiply-adds.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include <rlalgo/cpu/detail/product_tiles.hpp>
#include <rlalgo/cpu/lanes.hpp>
#include <rlalgo/cpu/transpose.hpp>

namespace rlalgo::cpu::avx512 {

using lanes::first;
using tiles::Destination;
using tiles::Strided;

#define RLALGO_AVX512 gnu::target("avx512f")

// out[c · ldo + r] = in[r · ldi + c] for 16 columns of four bytes of `Rows` rows; rows from `Rows` to 15 are zero. `some`: of each
// row of out.
template <int Rows, class T>
[[RLALGO_AVX512]] inline void transpose(const T* in, std::int64_t ldi, float* out, std::int64_t ldo, __mmask16 some) {
  __m512 r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = i < Rows ? _mm512_loadu_ps(in + i * ldi) : _mm512_setzero_ps();
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_mask_storeu_ps(out + i * ldo, some, r[i]);
}

// Transposes sixteen rows and writes the first `columns` of their columns.
[[RLALGO_AVX512, gnu::always_inline]] inline void transpose_some(__m512 (&r)[16], std::int64_t columns, float* out,
                                                                 std::int64_t ldo, __mmask16 some) {
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    if (i < columns) _mm512_mask_storeu_ps(out + i * ldo, some, r[i]);
}

// Kernel::pack of an x that lies in rows; Kernel::pack_some does what has fewer than sixteen rows or steps.
template <class Kernel, int Width>
[[RLALGO_AVX512]] inline void pack_transposed(const Strided<typename Kernel::Element>& x, std::int64_t count,
                                              std::int64_t k, float* out) {
  constexpr std::int64_t elements = 16 * Kernel::per_step;
  constexpr int rows = Width < 16 ? Width : 16;
  for (std::int64_t j = 0; j < k; j += elements, out += 16 * Width)
    for (int part = 0; 16 * part < Width; ++part) {
      const __mmask16 stored = first(Width - 16 * part);
      if (count - 16 * part >= rows && j + elements <= k)
        transpose<rows>(x.at(16 * part, j), x.rows, out + 16 * part, Width, stored);
      else
        Kernel::pack_some(x.at(16 * part, j), x.rows, count - 16 * part, k - j, out + 16 * part, Width, stored);
    }
}

struct Float32 {
  using Element = float;
  using Scope = tiles::Nothing;
  static constexpr std::int64_t per_step = 1, whole_steps = 1, block = 768, tile_rows = 12, tile_columns = 32;
  static constexpr bool own_rows = false;

  template <int Width>
  [[RLALGO_AVX512]] static void pack(const Strided<float>& x, std::int64_t count, std::int64_t k, float* out) {
    if (x.rows != 1) return pack_transposed<Float32, Width>(x, count, k, out);
    const __mmask16 from[2] = {first(count), first(count - 16)};
    for (std::int64_t j = 0; j < k; ++j)
      for (int part = 0; 16 * part < Width; ++part)
        _mm512_mask_storeu_ps(out + j * Width + 16 * part, first(Width - 16 * part),
                              _mm512_maskz_loadu_ps(from[part], x.at(16 * part, j)));
  }

  // Of at most 16 rows and columns.
  [[RLALGO_AVX512]] static void pack_some(const float* x, std::int64_t ldx, std::int64_t rows, std::int64_t columns,
                                          float* out, std::int64_t ldo, __mmask16 stored) {
    const __mmask16 some = first(columns);
    __m512 r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = i < rows ? _mm512_maskz_loadu_ps(some, x + i * ldx) : _mm512_setzero_ps();
    transpose_some(r, columns, out, ldo, stored);
  }

  template <int Rows>
  [[RLALGO_AVX512]] static void tile(const float* a, const float* b, std::int64_t k, const Destination<float>& to,
                                     std::int64_t columns) {
    __m512 sum[Rows][2];
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    for (std::int64_t j = 0; j < k; ++j, a += tile_rows, b += tile_columns) {
      const __m512 b0 = _mm512_loadu_ps(b), b1 = _mm512_loadu_ps(b + 16);
#pragma GCC unroll 12
      for (int i = 0; i < Rows; ++i) {
        const __m512 x = _mm512_set1_ps(a[i]);
        sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
        sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
      }
    }
    const __mmask16 low = first(columns), high = first(columns - 16);
    const __m512 factor = _mm512_set1_ps(to.alpha);
    const bool adds = to.adds || !to.first;
    float* c = to.c;
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i, c += to.ldc) {
      // (Written as one operation: of a product and a sum a compiler makes one in some rows of a tile and not in others.)
      const __m512 c0 =
          adds ? _mm512_fmadd_ps(sum[i][0], factor, _mm512_maskz_loadu_ps(low, c)) : _mm512_mul_ps(sum[i][0], factor);
      const __m512 c1 = adds ? _mm512_fmadd_ps(sum[i][1], factor, _mm512_maskz_loadu_ps(high, c + 16))
                             : _mm512_mul_ps(sum[i][1], factor);
      _mm512_mask_storeu_ps(c, low, c0);
      _mm512_mask_storeu_ps(c + 16, high, c1);
    }
  }
};

#undef RLALGO_AVX512

}  // namespace rlalgo::cpu::avx512

#endif
