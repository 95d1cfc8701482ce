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

#include <rlalgo/cpu/detail/avx2_registers.hpp>
#include <rlalgo/cpu/detail/block_product.hpp>
#include <rlalgo/cpu/detail/int8_rows.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/int8_matrix.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu::avx2 {

// Value std::int8_t: in order; std::int16_t: of every four the first and the third before the second and the fourth.
template <class Value>
[[gnu::target("avx2,fma")]] inline void quantize_row(const float* x, std::int64_t k, Value* values, float* scales,
                                                     std::int32_t* offsets) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  for (std::int64_t g = 0; g * Int8Layout::group < k; ++g) {
    const std::int64_t left = k - g * Int8Layout::group;
    __m256 xs[4];
    __m256i largest = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      xs[part] = load(x + g * Int8Layout::group + 8 * part, first(left - 8 * part));
      largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(xs[part]), magnitude));
    }
    std::uint32_t lanes[8];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), largest);
    const float most = std::bit_cast<float>(*std::max_element(lanes, lanes + 8));
    Value* const to = values + g * Int8Layout::group;
    scales[g] = scale_of_group(most);
    offsets[g] = 0;
    if (!has_scale(most)) {
      std::fill_n(to, Int8Layout::group, Value{0});
      continue;
    }
    const __m256 inverse = _mm256_set1_ps(127.0f / most);
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(xs[part], inverse));
      sum = _mm256_add_epi32(sum, q);
      const __m256i ordered = sizeof(Value) == 1 ? q : _mm256_shuffle_epi32(q, 0xD8);
      const __m128i shorts = _mm_packs_epi32(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
      auto* const place = reinterpret_cast<__m128i*>(to + 8 * part);
      if constexpr (sizeof(Value) == 1)
        _mm_storel_epi64(place, _mm_packs_epi16(shorts, shorts));
      else
        _mm_storeu_si128(place, shorts);
    }
    std::int32_t sums[8];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), sum);
    for (const std::int32_t lane : sums) offsets[g] -= 128 * lane;
  }
}

// Of BlockProduct.
struct Int8Tile {
  static constexpr int most_rows = 4;
  static constexpr std::int64_t most_blocks(std::int64_t) { return 1; }

  explicit Int8Tile(const LinearArgs& a)
      : x(int8_rows<std::int16_t>(a, quantize_row)), bytes(Int8Layout(a.k).block_bytes()) {}
  [[nodiscard]] std::int64_t block_bytes() const { return bytes; }

  template <int Blocks, int Rows>
  [[gnu::target("avx2,fma")]] void multiply(std::int64_t first, const std::byte* w, const BlockOut& out,
                                            const BlockAhead& ahead) const {
    std::int64_t phase = ahead.phase;
    const __m256i even = _mm256_set1_epi16(0x00FF);
    __m256 sum[Rows][2];
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) sum[i][0] = sum[i][1] = _mm256_setzero_ps();
    for (std::int64_t g = 0; g < x.groups; ++g) {
      const std::byte* const at = w + g * Int8Layout::group_bytes;
      if (phase-- == 0) {
        phase = ahead.period - 1;
        prefetch<Int8Layout::group_bytes / cache_line>(reinterpret_cast<const char*>(at) + ahead.bytes);
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
    const std::int64_t begin = std::max<std::int64_t>(out.begin, 0), end = std::min(out.end, rows_of_a_block);
    for (int i = 0; i < Rows; ++i) {
      float y[rows_of_a_block];
      _mm256_storeu_ps(y, sum[i][0]);
      _mm256_storeu_ps(y + 8, sum[i][1]);
      std::copy(y + begin, y + end, out.y + (first + i) * out.ldy + begin);
    }
  }

  Int8Rows<std::int16_t> x;
  std::int64_t bytes;
};

inline void linear_int8(const LinearArgs& a) {
  const Int8Tile tile(a);
  BlockProduct(a, tile).run();
}

}  // namespace rlalgo::cpu::avx2

#endif
