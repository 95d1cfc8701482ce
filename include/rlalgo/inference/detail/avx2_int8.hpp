// y = x Wᵀ in 8 bits (quantization.hpp) with AVX2. Its products of bytes are not exact, so bytes become 16 bits: those at even places of W and
// those at odd ones, two at a time, meet x in that order; a lane is a row of W. A tile is a block of W by up to 4 rows of x.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <rlalgo/inference/detail/avx2_linear.hpp>
#include <rlalgo/inference/detail/int8_matrix.hpp>
#include <rlalgo/inference/detail/int8_rows.hpp>
#include <rlalgo/inference/detail/kernels.hpp>
#include <rlalgo/inference/detail/linear_strips.hpp>

namespace rlalgo::inference::detail::avx2 {

// In 16 bits, of every four the first and the third before the second and the fourth.
[[gnu::target("avx2,fma")]] inline void quantize_row(const float* x, std::int64_t k, std::int16_t* values,
                                                     float* scales, std::int32_t* offsets) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  for (std::int64_t g = 0; g * Int8Layout::group < k; ++g) {
    const std::int64_t left = k - g * Int8Layout::group;
    __m256 xs[4];
    __m256i largest = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      xs[part] = load_first(x + g * Int8Layout::group + 8 * part, left - 8 * part);
      largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(xs[part]), magnitude));
    }
    std::uint32_t lanes[8];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), largest);
    const float most = std::bit_cast<float>(*std::max_element(lanes, lanes + 8));
    std::int16_t* const to = values + g * Int8Layout::group;
    scales[g] = scale_of_group(most);
    offsets[g] = 0;
    if (!has_scale(most)) {
      std::fill_n(to, Int8Layout::group, std::int16_t{0});
      continue;
    }
    const __m256 inverse = _mm256_set1_ps(127.0f / most);
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(xs[part], inverse));
      sum = _mm256_add_epi32(sum, q);
      const __m256i ordered = _mm256_shuffle_epi32(q, 0xD8);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8 * part),
                       _mm_packs_epi32(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
    }
    std::int32_t sums[8];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), sum);
    for (const std::int32_t lane : sums) offsets[g] -= 128 * lane;
  }
}

// Rows [first, first + Rows) of x by a block of W, whole, to y [Rows, 16]. Fetches what lies `ahead` bytes behind each `period`-th group, from
// `phase` on.
template <int Rows>
[[gnu::target("avx2,fma")]] inline void int8_tile(const Int8Rows<std::int16_t>& x, std::int64_t first,
                                                  const std::byte* w, float* y, std::int64_t ahead, std::int64_t phase,
                                                  std::int64_t period) {
  const __m256i even = _mm256_set1_epi16(0x00FF);
  __m256 sum[Rows][2];
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
  for (std::int64_t g = 0; g < x.groups; ++g) {
    const std::byte* const at = w + g * Int8Layout::group_bytes;
    if (phase-- == 0) {
      phase = period - 1;
      prefetch<Int8Layout::group_bytes / cache_line>(reinterpret_cast<const char*>(at) + ahead);
    }
    const std::int16_t* values[Rows];
    __m256i whole[Rows][2];
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) {
      values[i] = x.row(first + i) + g * Int8Layout::group;
      whole[i][0] = whole[i][1] = _mm256_set1_epi32(x.offsets[(first + i) * x.groups + g]);
    }
    for (std::int64_t step = 0; step < Int8Layout::steps; ++step) {
#pragma GCC unroll 2
      for (int n = 0; n < 2; ++n) {
        const __m256i bytes = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + step * cache_line) + n);
        const __m256i evens = _mm256_and_si256(bytes, even), odds = _mm256_srli_epi16(bytes, 8);
#pragma GCC unroll 4
        for (int i = 0; i < Rows; ++i) {
          std::int32_t first_two, other_two;
          std::memcpy(&first_two, values[i] + 4 * step, sizeof first_two);
          std::memcpy(&other_two, values[i] + 4 * step + 2, sizeof other_two);
          whole[i][n] = _mm256_add_epi32(whole[i][n], _mm256_madd_epi16(evens, _mm256_set1_epi32(first_two)));
          whole[i][n] = _mm256_add_epi32(whole[i][n], _mm256_madd_epi16(odds, _mm256_set1_epi32(other_two)));
        }
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
      : a_(a), x_(int8_rows<std::int16_t>(a, quantize_row)), block_bytes_(Int8Layout(a.k).block_bytes()) {}

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
  Int8Rows<std::int16_t> x_;
  std::int64_t block_bytes_;
};

inline void linear_int8(const LinearArgs& a) { Int8Product(a).run(); }

}  // namespace rlalgo::inference::detail::avx2

#endif
