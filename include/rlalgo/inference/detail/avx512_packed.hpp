// y = x Wᵀ for bfloat16 weights that were packed once: blocks of sixteen rows of W, [pairs of columns][16 rows][2]. A lane is a row of W and
// a pair of x is in all lanes, so nothing is added across lanes, and a tile of 4 blocks by 6 rows of x loads 10 registers for 24 products
// of pairs. Every output is one chain in the order of k, whatever stands beside it.
//
// W is read once, as it lies; what comes next is fetched into L2 meanwhile, by the tiles in turn.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <rlalgo/inference/detail/kernels.hpp>
#include <rlalgo/inference/detail/linear_strips.hpp>
#include <rlalgo/tensor/lanes.hpp>
#include <rlalgo/tensor/turned.hpp>

namespace rlalgo::inference::detail::avx512_bf16 {

#define RLALGO_AVX512_BF16 gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16")

inline constexpr std::int64_t packed_rows = 16;

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
        const std::int64_t row = b * packed_rows + i;
        square[i] =
            row < rows ? _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(some, w + row * k + j)) : _mm512_setzero_ps();
      }
      tensor::avx512::turn(square);
      std::byte* const at = out + b * packed_block_bytes(k) + j / 2 * cache_line;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        if (2 * i < columns) _mm512_store_ps(at + i * cache_line, square[i]);
    }
}

// Rows [0, Rows) of x by `Columns` blocks of W; in y column c of block n only where bit c of some[n] is set. Fetches what lies `ahead` bytes behind
// each `period`-th pair, from `phase` on.
template <int Columns, int Rows>
[[RLALGO_AVX512_BF16]] inline void packed_tile(const std::uint16_t* x, std::int64_t ldx, std::int64_t k,
                                               const std::byte* w, float* y, std::int64_t ldy,
                                               const __mmask16 (&some)[4], std::int64_t ahead, std::int64_t phase,
                                               std::int64_t period) {
  const std::int64_t block_bytes = packed_block_bytes(k);
  __m512 sum[Rows][Columns];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n) sum[i][n] = _mm512_setzero_ps();
  const auto step = [&](std::int64_t j, std::uint32_t kept)
      __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16"), always_inline)) {
    const std::byte* const at = w + j * cache_line;
    __m512bh ws[Columns];
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n) ws[n] = reinterpret_cast<__m512bh>(_mm512_load_si512(at + n * block_bytes));
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      std::uint32_t pair;
      std::memcpy(&pair, x + i * ldx + 2 * j, sizeof pair);
      const auto xs = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<std::int32_t>(pair & kept)));
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) sum[i][n] = _mm512_dpbf16_ps(sum[i][n], ws[n], xs);
    }
  };
  for (std::int64_t j = 0; j < k / 2; ++j) {
    if (phase-- == 0) {
      phase = period - 1;
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n)
        prefetch<1>(reinterpret_cast<const char*>(w) + n * block_bytes + j * cache_line + ahead);
    }
    step(j, ~0U);
  }
  if (k % 2 == 1) step(k / 2, 0xFFFFU);  // the last column has no neighbour
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n) _mm512_mask_storeu_ps(y + i * ldy + 16 * n, some[n], sum[i][n]);
}

#undef RLALGO_AVX512_BF16

class PackedProduct {
 public:
  explicit PackedProduct(const LinearArgs& a) : a_(a), block_bytes_(packed_block_bytes(a.k)) {}

  void run() const {
    const std::int64_t end = (a_.end + packed_rows - 1) / packed_rows;
    std::int64_t block = a_.begin / packed_rows;
    for (; block + 4 <= end; block += 4) blocks<4>(block);
    if (end - block == 3) return blocks<3>(block);
    if (end - block == 2) return blocks<2>(block);
    if (end - block == 1) blocks<1>(block);
  }

 private:
  static constexpr int most_rows = 6;

  // All rows of x by `Columns` blocks of W, in tiles of nearly the same height.
  template <int Columns>
  void blocks(std::int64_t block) const {
    const std::int64_t tiles = (a_.m + most_rows - 1) / most_rows, rows = a_.m / tiles, higher = a_.m - rows * tiles;
    __mmask16 some[4] = {};
    for (std::int64_t n = 0; n < Columns; ++n)
      some[n] = tensor::lanes::within((block + n) * packed_rows, a_.begin, a_.end);
    for (std::int64_t row = 0, t = 0; t < tiles; ++t) {
      const std::int64_t height = t < higher ? rows + 1 : rows;
      tile<Columns, most_rows>(height, row, block, some, t, tiles);
      row += height;
    }
  }

  template <int Columns, int Rows>
  void tile(std::int64_t rows, std::int64_t row, std::int64_t block, const __mmask16 (&some)[4], std::int64_t phase,
            std::int64_t period) const {
    if (rows == Rows)
      packed_tile<Columns, Rows>(a_.x_bf16 + row * a_.ldx, a_.ldx, a_.k,
                                 static_cast<const std::byte*>(a_.w) + block * block_bytes_,
                                 a_.y + row * a_.ldy + block * packed_rows - a_.begin, a_.ldy, some,
                                 std::max(prefetch_distance / Columns, Columns * block_bytes_), phase, period);
    else if constexpr (Rows > 1)
      tile<Columns, Rows - 1>(rows, row, block, some, phase, period);
  }

  const LinearArgs& a_;
  std::int64_t block_bytes_;
};

inline void linear_packed(const LinearArgs& a) { PackedProduct(a).run(); }

}  // namespace rlalgo::inference::detail::avx512_bf16

#endif
