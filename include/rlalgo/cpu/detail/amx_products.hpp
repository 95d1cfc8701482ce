// The kernel of bfloat16 with AMX for product_tiles.hpp: tiles of 32 × 32 of C, which are four sums of 16 × 16. B is packed in pairs of k as
// for AVX-512's bfloat16, A in blocks of 16 pairs of k, [rows][16], both padded with zeros to whole blocks. C is rounded once, after the last block of k.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include <rlalgo/cpu/amx.hpp>
#include <rlalgo/cpu/detail/avx512_bf16_products.hpp>
#include <rlalgo/cpu/detail/avx512_products.hpp>

namespace rlalgo::cpu::amx {

using avx512::Destination;
using avx512::Strided;

#define RLALGO_AMX gnu::target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")

struct Bfloat16 {
  using Element = std::uint16_t;  // the bits of one
  using Scope = Tiles;
  static constexpr std::int64_t per_step = 2, whole_steps = 16, tile_rows = 32, tile_columns = 32, block = 384;
  static constexpr bool own_rows = true;

  template <int Width>
  [[RLALGO_AMX]] static void pack(const Strided<Element>& x, std::int64_t count, std::int64_t k, float* out) {
    avx512::Bfloat16::pack<Width>(x, count, k, out);
    std::fill(out + (k + 1) / 2 * Width, out + tiles::steps_of<Bfloat16>(k) * Width, 0.0f);
  }

  // out[s / 16][i][s mod 16] = step s of row i.
  [[RLALGO_AMX]] static void pack_rows(const Strided<Element>& x, std::int64_t count, std::int64_t k, float* out) {
    alignas(64) float pairs[whole_steps * tile_rows];
    for (std::int64_t j = 0; j < k; j += 2 * whole_steps, out += whole_steps * tile_rows) {
      const std::int64_t depth = std::min<std::int64_t>(2 * whole_steps, k - j);
      if (x.columns == 1) {
        const auto some = static_cast<__mmask32>((std::uint64_t{1} << depth) - 1);
        for (std::int64_t i = 0; i < tile_rows; ++i)
          _mm512_storeu_si512(out + i * whole_steps,
                              i < count ? _mm512_maskz_loadu_epi16(some, x.at(i, j)) : _mm512_setzero_si512());
        continue;
      }
      pack<tile_rows>({x.at(0, j), x.rows, x.columns}, count, depth, pairs);
      for (int half = 0; half < 2; ++half)
        avx512::transpose<16>(pairs + 16 * half, tile_rows, out + 16 * half * whole_steps, whole_steps, 0xFFFF);
    }
  }

  [[RLALGO_AMX]] static void tile(std::int64_t rows, const float* a, const float* b, std::int64_t steps,
                                  const Destination<Element>& to, std::int64_t columns) {
    constexpr std::int64_t quarter = 16 * 16, row_bytes = 4 * tile_columns;
    alignas(64) float sums[4][quarter];
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    stored();
    for (std::int64_t s = 0; s < steps;
         s += whole_steps, a += whole_steps * tile_rows, b += whole_steps * tile_columns) {
      _tile_loadd(4, a, 64);
      _tile_loadd(6, b, row_bytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + 16, row_bytes);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + quarter, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
    const bool whole_rows = columns == tile_columns && to.first && to.last && !to.adds;  // most are
    const __m512 factor = _mm512_set1_ps(to.alpha);
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* const left = sums[i < 16 ? 0 : 2] + i % 16 * 16;
      const __m512 c0 = _mm512_load_ps(left), c1 = _mm512_load_ps(left + quarter);
      if (whole_rows)
        _mm512_storeu_si512(to.c + i * to.ldc, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
                                                   _mm512_mul_ps(c1, factor), _mm512_mul_ps(c0, factor))));
      else
        avx512::Bfloat16::store_row(c0, c1, to.at(i, 0), columns);
    }
  }
};

#undef RLALGO_AMX

}  // namespace rlalgo::cpu::amx

#endif
