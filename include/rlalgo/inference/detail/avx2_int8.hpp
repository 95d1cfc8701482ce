// y = x Wᵀ in 8 bits (quantization.hpp) with AVX2, which multiplies bytes only where one side has no sign: |x| meets W with the sign of x. Sums of
// two such products fit 16 bits, since neither is ever −128. A tile is a block of W by up to 4 rows of x.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <rlalgo/inference/detail/int8_matrix.hpp>
#include <rlalgo/inference/detail/int8_rows.hpp>
#include <rlalgo/inference/detail/kernels.hpp>
#include <rlalgo/inference/detail/linear_strips.hpp>
#include <rlalgo/inference/detail/portable_int8.hpp>

namespace rlalgo::inference::detail::avx2 {

// Rows [first, first + Rows) of x by a block of W, whole, to y [Rows, 16]. Fetches what lies `ahead` bytes behind each `period`-th group, from
// `phase` on.
template <int Rows>
[[gnu::target("avx2,fma")]] inline void int8_tile(const Int8Rows& x, std::int64_t first, const std::byte* w, float* y,
                                                  std::int64_t ahead, std::int64_t phase, std::int64_t period) {
  const __m256i sign = _mm256_set1_epi8(-128), ones = _mm256_set1_epi16(1);
  __m256 sum[Rows][2];
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
  for (std::int64_t g = 0; g < x.groups; ++g) {
    const std::byte* const at = w + g * Int8Layout::group_bytes;
    if (phase-- == 0) {
      phase = period - 1;
      prefetch<Int8Layout::group_bytes / cache_line>(reinterpret_cast<const char*>(at) + ahead);
    }
    __m256i whole[Rows][2];
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) whole[i][0] = whole[i][1] = _mm256_setzero_si256();
    for (std::int64_t step = 0; step < Int8Layout::steps; ++step) {
      const auto* const bytes = reinterpret_cast<const __m256i*>(at + step * cache_line);
      const __m256i w0 = _mm256_xor_si256(_mm256_load_si256(bytes), sign),
                    w1 = _mm256_xor_si256(_mm256_load_si256(bytes + 1), sign);
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i) {
        std::int32_t four;
        std::memcpy(&four, x.row(first + i) + g * Int8Layout::group + 4 * step, sizeof four);
        const __m256i xs = _mm256_set1_epi32(four), size = _mm256_abs_epi8(xs);
        const auto add = [&](__m256i & to, __m256i ws) __attribute__((always_inline, target("avx2,fma"))) {
          const __m256i pairs = _mm256_maddubs_epi16(size, _mm256_sign_epi8(ws, xs));
          to = _mm256_add_epi32(to, _mm256_madd_epi16(pairs, ones));
        };
        add(whole[i][0], w0);
        add(whole[i][1], w1);
      }
    }
    const auto* const scales = reinterpret_cast<const float*>(at + Int8Layout::scales_at);
#pragma GCC unroll 2
    for (int n = 0; n < 2; ++n) {
      const __m256 scale = _mm256_load_ps(scales + 8 * n);
#pragma GCC unroll 4
      for (int i = 0; i < Rows; ++i)
        sum[i][n] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole[i][n]),
                            _mm256_mul_ps(scale, _mm256_set1_ps(x.scales[(first + i) * x.groups + g])), sum[i][n]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 2
    for (int n = 0; n < 2; ++n) _mm256_storeu_ps(y + 16 * i + 8 * n, sum[i][n]);
}

class Int8Product {
 public:
  explicit Int8Product(const LinearArgs& a)
      : a_(a), x_(int8_rows(a, quantize_row)), block_bytes_(Int8Layout(a.k).block_bytes()) {}

  void run() const {
    const std::int64_t tiles = (a_.m + most_rows - 1) / most_rows, rows = a_.m / tiles, higher = a_.m - rows * tiles;
    for (std::int64_t block = a_.begin / Int8Layout::rows; block < Int8Layout::blocks(a_.end); ++block)
      for (std::int64_t row = 0, t = 0; t < tiles; ++t) {
        const std::int64_t height = t < higher ? rows + 1 : rows;
        tile<most_rows>(height, row, block, t, tiles);
        row += height;
      }
  }

 private:
  static constexpr int most_rows = 4;

  template <int Rows>
  void tile(std::int64_t rows, std::int64_t row, std::int64_t block, std::int64_t phase, std::int64_t period) const {
    if (rows == Rows) {
      float y[Rows * Int8Layout::rows];
      int8_tile<Rows>(x_, row, static_cast<const std::byte*>(a_.w) + block * block_bytes_, y,
                      std::max(prefetch_distance, block_bytes_), phase, period);
      const std::int64_t first = block * Int8Layout::rows, begin = std::max(first, a_.begin),
                         end = std::min(first + Int8Layout::rows, a_.end);
      for (std::int64_t i = 0; i < Rows; ++i)
        std::copy(y + i * Int8Layout::rows + begin - first, y + i * Int8Layout::rows + end - first,
                  a_.y + (row + i) * a_.ldy + begin - a_.begin);
    } else if constexpr (Rows > 1) {
      tile<Rows - 1>(rows, row, block, phase, period);
    }
  }

  const LinearArgs& a_;
  Int8Rows x_;
  std::int64_t block_bytes_;
};

inline void linear_int8(const LinearArgs& a) { Int8Product(a).run(); }

}  // namespace rlalgo::inference::detail::avx2

#endif
