// The kernel of bfloat16 for product_tiles.hpp, on the instruction for it, with the tiles of avx512_products.hpp: a step takes two
// elements of k, packed as a pair of four bytes, and adds both products to float32 sums. Of k odd the last pair's second is 0. C is
// rounded once, after the last block.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include <rlalgo/cpu/detail/avx512_products.hpp>

namespace rlalgo::cpu::avx512 {

#define RLALGO_AVX512_BF16 gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")

struct Bfloat16 {
  using Element = std::uint16_t;  // the bits of one
  using Scope = tiles::Nothing;
  static constexpr std::int64_t per_step = 2, whole_steps = 1, block = 768, tile_rows = 12, tile_columns = 32;
  static constexpr bool own_rows = false;

  // A step is the pair x[i, 2 s], x[i, 2 s + 1].
  template <int Width>
  [[RLALGO_AVX512_BF16]] static void pack(const Strided<Element>& x, std::int64_t count, std::int64_t k, float* out) {
    if (x.rows != 1) return pack_transposed<Bfloat16, Width>(x, count, k, out);
    for (std::int64_t j = 0; j < k; j += 2, out += Width)
      for (int part = 0; 16 * part < Width; ++part) {
        const __mmask16 some = first(count - 16 * part);
        const __m512i even = wide(x.at(16 * part, j), some);
        const __m512i odd = j + 1 < k ? wide(x.at(16 * part, j + 1), some) : _mm512_setzero_si512();
        _mm512_mask_storeu_epi32(out + 16 * part, first(Width - 16 * part),
                                 _mm512_or_si512(even, _mm512_maskz_slli_epi32(0xFFFF, odd, 16)));
      }
  }

  // Of at most 16 rows and 32 columns.
  [[RLALGO_AVX512_BF16]] static void pack_some(const Element* x, std::int64_t ldx, std::int64_t rows,
                                               std::int64_t columns, float* out, std::int64_t ldo, __mmask16 stored) {
    const __mmask32 some = columns >= 32 ? ~__mmask32{0} : (__mmask32{1} << columns) - 1;
    __m512 r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      r[i] = i < rows ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(some, x + i * ldx)) : _mm512_setzero_ps();
    transpose_some(r, (columns + 1) / 2, out, ldo, stored);
  }

  template <int Rows>
  [[RLALGO_AVX512_BF16]] static void tile(const float* a, const float* b, std::int64_t steps,
                                          const Destination<Element>& to, std::int64_t columns) {
    __m512 sum[Rows][2];
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
    for (std::int64_t j = 0; j < steps; ++j, a += tile_rows, b += tile_columns) {
      const auto b0 = reinterpret_cast<__m512bh>(_mm512_loadu_ps(b));
      const auto b1 = reinterpret_cast<__m512bh>(_mm512_loadu_ps(b + 16));
#pragma GCC unroll 12
      for (int i = 0; i < Rows; ++i) {
        const auto x = reinterpret_cast<__m512bh>(_mm512_set1_ps(a[i]));
        sum[i][0] = _mm512_dpbf16_ps(sum[i][0], x, b0);
        sum[i][1] = _mm512_dpbf16_ps(sum[i][1], x, b1);
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) store_row(sum[i][0], sum[i][1], to.at(i, 0), columns);
  }

  // A row of a tile to its destination: 32 sums, of which the first `columns` are wanted.
  [[RLALGO_AVX512_BF16, gnu::always_inline]] static void store_row(__m512 c0, __m512 c1, const Destination<Element>& to,
                                                                   std::int64_t columns) {
    const __mmask16 low = first(columns), high = first(columns - 16);
    if (!to.first) {
      c0 = _mm512_add_ps(_mm512_maskz_loadu_ps(low, to.waiting), c0);
      c1 = _mm512_add_ps(_mm512_maskz_loadu_ps(high, to.waiting + 16), c1);
    }
    if (!to.last) {
      _mm512_mask_storeu_ps(to.waiting, low, c0);
      _mm512_mask_storeu_ps(to.waiting + 16, high, c1);
      return;
    }
    const __m512 factor = _mm512_set1_ps(to.alpha);
    c0 = _mm512_mul_ps(c0, factor);
    c1 = _mm512_mul_ps(c1, factor);
    if (to.adds) {
      c0 = _mm512_add_ps(as_float(wide(to.c, low)), c0);
      c1 = _mm512_add_ps(as_float(wide(to.c + 16, high)), c1);
    }
    _mm256_mask_storeu_epi16(to.c, low, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(c0)));
    _mm256_mask_storeu_epi16(to.c + 16, high, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(c1)));
  }

 private:
  // The elements of `some` in the low halves of sixteen lanes.
  [[RLALGO_AVX512_BF16, gnu::always_inline]] static __m512i wide(const Element* p, __mmask16 some) {
    return _mm512_maskz_cvtepu16_epi32(some, _mm256_maskz_loadu_epi16(some, p));
  }
  [[RLALGO_AVX512_BF16, gnu::always_inline]] static __m512 as_float(__m512i low_halves) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, low_halves, 16));
  }
};

#undef RLALGO_AVX512_BF16

}  // namespace rlalgo::cpu::avx512

#endif
