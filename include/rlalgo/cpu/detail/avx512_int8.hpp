// y = x Wᵀ in 8 bits (quantization.hpp) with AVX-512 VNNI: a lane is a row of W, and each step multiplies four bytes of x with four of every
// lane. A tile is two blocks of W by up to 6 rows of x, one block where columns are left, four for a row alone, which waits for memory.
//
// W is read once, as it lies; what comes next is fetched into L2 meanwhile, by the tiles in turn.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include <rlalgo/cpu/detail/avx2_int8.hpp>
#include <rlalgo/cpu/detail/block_product.hpp>
#include <rlalgo/cpu/detail/int8_rows.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/int8_matrix.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/lanes.hpp>

namespace rlalgo::cpu::avx512_vnni {

#define RLALGO_AVX512_VNNI gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")

// Of BlockProduct.
struct Int8Tile {
  static constexpr int most_rows = 6;
  static constexpr std::int64_t most_blocks(std::int64_t rows) { return rows == 1 ? 4 : 2; }

  explicit Int8Tile(const LinearArgs& a)
      : x(int8_rows<std::int8_t>(a, avx2::quantize_row)), bytes(Int8Layout(a.k).block_bytes()) {}
  [[nodiscard]] std::int64_t block_bytes() const { return bytes; }

  template <int Blocks, int Rows>
  [[RLALGO_AVX512_VNNI]] void multiply(std::int64_t first, const std::byte* w, const BlockOut& out,
                                       const BlockAhead& ahead) const {
    const std::int64_t block_bytes = bytes;
    std::int64_t phase = ahead.phase;
    const std::int64_t groups = x.groups;
    const float* const scales = x.scales + first * groups;
    const std::int32_t* const offsets = x.offsets + first * groups;
    const std::int8_t* const values = x.row(first);
    const std::int64_t stride = groups * Int8Layout::group;
    __m512 sum[Rows][Blocks];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int n = 0; n < Blocks; ++n) sum[i][n] = _mm512_setzero_ps();
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::byte* const at = w + g * Int8Layout::group_bytes;
      if (phase-- == 0) {
        phase = ahead.period - 1;
#pragma GCC unroll 8
        for (int n = 0; n < Blocks; ++n)
          prefetch<Int8Layout::group_bytes / cache_line>(reinterpret_cast<const char*>(at) + n * block_bytes +
                                                         ahead.bytes);
      }
      __m512i whole[Rows][Blocks];
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
        for (int n = 0; n < Blocks; ++n) whole[i][n] = _mm512_set1_epi32(offsets[i * groups + g]);
#pragma GCC unroll 8
      for (std::int64_t step = 0; step < Int8Layout::steps; ++step) {
        __m512i ws[Blocks];
#pragma GCC unroll 8
        for (int n = 0; n < Blocks; ++n) ws[n] = _mm512_load_si512(at + n * block_bytes + step * cache_line);
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) {
          std::int32_t four;
          std::memcpy(&four, values + i * stride + g * Int8Layout::group + 4 * step, sizeof four);
          const __m512i xs = _mm512_set1_epi32(four);
#pragma GCC unroll 8
          for (int n = 0; n < Blocks; ++n) whole[i][n] = _mm512_dpbusd_epi32(whole[i][n], ws[n], xs);
        }
      }
#pragma GCC unroll 8
      for (int n = 0; n < Blocks; ++n) {
        const __m512 scale = _mm512_load_ps(at + n * block_bytes + Int8Layout::scales_at);
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i)
          sum[i][n] = _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(0xFFFF, whole[i][n]),
                                      _mm512_mul_ps(scale, _mm512_set1_ps(scales[i * groups + g])), sum[i][n]);
      }
    }
#pragma GCC unroll 8
    for (int n = 0; n < Blocks; ++n) {
      const __mmask16 some = lanes::within(16 * n, out.begin, out.end);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) _mm512_mask_storeu_ps(out.y + (first + i) * out.ldy + 16 * n, some, sum[i][n]);
    }
  }

  Int8Rows<> x;
  std::int64_t bytes;
};

#undef RLALGO_AVX512_VNNI

inline void linear_int8(const LinearArgs& a) {
  const Int8Tile tile(a);
  BlockProduct(a, tile).run();
}

}  // namespace rlalgo::cpu::avx512_vnni

#endif
