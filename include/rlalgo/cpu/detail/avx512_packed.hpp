// y = x Wᵀ for bfloat16 weights that were packed once: blocks of sixteen rows of W, [pairs of columns][16 rows][2]. A lane is a row of W and
// a pair of x is in all lanes, so nothing is added across lanes, and a tile of 4 blocks by 6 rows of x loads 10 registers for 24 products
// of pairs. Every output is one chain in the order of k, whatever its neighbours are.
//
// W is read once, as it lies; what comes next is fetched into L2 meanwhile, by the tiles in transpose.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <rlalgo/cpu/detail/block_product.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/lanes.hpp>
#include <rlalgo/cpu/transpose.hpp>

namespace rlalgo::cpu::avx512_bf16 {

#define RLALGO_AVX512_BF16 gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16")

[[nodiscard]] inline std::int64_t packed_block_bytes(std::int64_t k) { return (k + 1) / 2 * cache_line; }

// Blocks [begin, end) of w [rows, k], row-major, into their places of `out`; what the matrix does not have is zero.
[[RLALGO_AVX512_BF16]] inline void pack(const std::uint16_t* w, std::int64_t rows, std::int64_t k, std::int64_t begin,
                                        std::int64_t end, std::byte* out) {
  for (std::int64_t b = begin; b < end; ++b)
    for (std::int64_t j = 0; j < k; j += 32) {  // 16 pairs of 16 rows
      __m512 square[16];
      const std::int64_t columns = std::min<std::int64_t>(32, k - j);
      const auto some = static_cast<__mmask32>(columns == 32 ? ~0U : (1U << columns) - 1);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        const std::int64_t row = b * rows_of_a_block + i;
        square[i] =
            row < rows ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(some, w + row * k + j)) : _mm512_setzero_ps();
      }
      avx512::transpose(square);
      std::byte* const at = out + b * packed_block_bytes(k) + j / 2 * cache_line;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        if (2 * i < columns) _mm512_store_ps(at + i * cache_line, square[i]);
    }
}

// Of BlockProduct.
struct PackedTile {
  static constexpr int most_rows = 6;
  static constexpr std::int64_t most_blocks(std::int64_t) { return 4; }

  [[nodiscard]] std::int64_t block_bytes() const { return packed_block_bytes(k); }

  template <int Blocks, int Rows>
  [[RLALGO_AVX512_BF16]] void multiply(std::int64_t first, const std::byte* w, const BlockOut& out,
                                       const BlockAhead& ahead) const {
    const std::int64_t block_bytes = packed_block_bytes(k), stride = ldx, pairs = k / 2;
    const std::uint16_t* const rows = x + first * stride;
    const auto [bytes, start, period] = ahead;
    std::int64_t phase = start;
    __m512 sum[Rows][Blocks];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int n = 0; n < Blocks; ++n) sum[i][n] = _mm512_setzero_ps();
    const auto step = [&](std::int64_t j, std::uint32_t kept)
        __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16"), always_inline)) {
      const std::byte* const at = w + j * cache_line;
      __m512bh ws[Blocks];
#pragma GCC unroll 8
      for (int n = 0; n < Blocks; ++n) ws[n] = reinterpret_cast<__m512bh>(_mm512_load_si512(at + n * block_bytes));
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        std::uint32_t pair;
        std::memcpy(&pair, rows + i * stride + 2 * j, sizeof pair);
        const auto xs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<std::int32_t>(pair & kept)));
#pragma GCC unroll 8
        for (int n = 0; n < Blocks; ++n) sum[i][n] = _mm512_dpbf16_ps(sum[i][n], ws[n], xs);
      }
    };
    for (std::int64_t j = 0; j < pairs; ++j) {
      if (phase-- == 0) {
        phase = period - 1;
#pragma GCC unroll 8
        for (int n = 0; n < Blocks; ++n)
          prefetch<1>(reinterpret_cast<const char*>(w) + n * block_bytes + j * cache_line + bytes);
      }
      step(j, ~0U);
    }
    if (k % 2 == 1) step(pairs, 0xFFFFU);  // the last column has no neighbour
#pragma GCC unroll 8
    for (int n = 0; n < Blocks; ++n) {
      const __mmask16 some = lanes::within(16 * n, out.begin, out.end);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) _mm512_mask_storeu_ps(out.y + (first + i) * out.ldy + 16 * n, some, sum[i][n]);
    }
  }

  const std::uint16_t* x;  // [m, k], row stride ldx
  std::int64_t ldx, k;
};

#undef RLALGO_AVX512_BF16

inline void linear_packed(const LinearArgs& a) {
  const PackedTile tile{a.x_bf16, a.ldx, a.k};
  BlockProduct(a, tile).run();
}

inline constexpr BlockKernels block_kernels{linear_packed, packed_block_bytes, pack};

}  // namespace rlalgo::cpu::avx512_bf16

#endif
