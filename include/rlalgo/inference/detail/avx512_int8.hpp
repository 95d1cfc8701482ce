// y = x Wᵀ in 8 bits (quantization.hpp) with AVX-512 VNNI: a lane is a row of W, and each step multiplies four bytes of x with four of every
// lane. A tile is two blocks of W by up to 6 rows of x, one block where columns are left, four for a row alone, which waits for memory.
//
// W is read once, as it lies; what comes next is fetched into L2 meanwhile, by the tiles in turn.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include <rlalgo/inference/detail/int8_matrix.hpp>
#include <rlalgo/inference/detail/int8_rows.hpp>
#include <rlalgo/inference/detail/kernels.hpp>
#include <rlalgo/inference/detail/linear_strips.hpp>
#include <rlalgo/tensor/lanes.hpp>

namespace rlalgo::inference::detail::avx512_vnni {

#define RLALGO_AVX512_VNNI gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")

// The lanes of a, combined: op(op(0, 4), …) of pairs.
template <class Op>
[[RLALGO_AVX512_VNNI, gnu::always_inline]] inline std::uint32_t reduce(__m256i a, Op op) {
  __m128i four = op(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  four = op(four, _mm_shuffle_epi32(four, 0x4E));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(op(four, _mm_shuffle_epi32(four, 0xB1))));
}

[[RLALGO_AVX512_VNNI]] inline void quantize_row(const float* x, std::int64_t k, std::int8_t* values, float* scales,
                                                std::int32_t* offsets) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const auto max = [](__m128i a, __m128i b) __attribute__((target("avx2,avx512vl"), always_inline)) {
    return _mm_max_epu32(a, b);
  };
  const auto add = [](__m128i a, __m128i b) __attribute__((target("avx2,avx512vl"), always_inline)) {
    return _mm_add_epi32(a, b);
  };
  for (std::int64_t g = 0; g * Int8Layout::group < k; ++g) {
    const std::int64_t left = k - g * Int8Layout::group;
    __m256 xs[4];
    __m256i largest = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      xs[part] =
          _mm256_maskz_loadu_ps(static_cast<__mmask8>(tensor::lanes::first(std::min<std::int64_t>(left - 8 * part, 8))),
                                x + g * Int8Layout::group + 8 * part);
      largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(xs[part]), magnitude));
    }
    const float most = std::bit_cast<float>(reduce(largest, max));
    auto* const to = values + g * Int8Layout::group;
    if (!has_scale(most)) {
      std::memset(to, 0, Int8Layout::group);
      scales[g] = scale_of_group(most);
      offsets[g] = 0;
      continue;
    }
    const __m256 inverse = _mm256_set1_ps(127.0f / most);
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int part = 0; part < 4; ++part) {
      const __m256i q = _mm256_cvtps_epi32(_mm256_mul_ps(xs[part], inverse));
      sum = _mm256_add_epi32(sum, q);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to + 8 * part), _mm256_maskz_cvtepi32_epi8(0xFF, q));
    }
    scales[g] = scale_of_group(most);
    offsets[g] = -128 * static_cast<std::int32_t>(reduce(sum, add));
  }
}

// Where a tile writes: column c of block n, of row i, where bit c of some[n] is set, to y[i · ldy + 16 n + c].
struct Int8Out {
  float* y;
  std::int64_t ldy;
  __mmask16 some[4];
};

// Rows [first, first + Rows) of x by `Columns` blocks of W. Fetches what lies `ahead` bytes behind each `period`-th group, from `phase` on.
template <int Columns, int Rows>
[[RLALGO_AVX512_VNNI]] inline void int8_tile(const Int8Rows<>& x, std::int64_t first, const std::byte* w,
                                             std::int64_t block_bytes, const Int8Out& out, std::int64_t ahead,
                                             std::int64_t phase, std::int64_t period) {
  const std::int64_t groups = x.groups;
  const float* const scales = x.scales + first * groups;
  const std::int32_t* const offsets = x.offsets + first * groups;
  const std::int8_t* const values = x.row(first);
  const std::int64_t stride = groups * Int8Layout::group;
  __m512 sum[Rows][Columns];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n) sum[i][n] = _mm512_setzero_ps();
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::byte* const at = w + g * Int8Layout::group_bytes;
    if (phase-- == 0) {
      phase = period - 1;
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n)
        prefetch<Int8Layout::group_bytes / cache_line>(reinterpret_cast<const char*>(at) + n * block_bytes + ahead);
    }
    __m512i whole[Rows][Columns];
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) whole[i][n] = _mm512_set1_epi32(offsets[i * groups + g]);
#pragma GCC unroll 8
    for (std::int64_t step = 0; step < Int8Layout::steps; ++step) {
      __m512i ws[Columns];
#pragma GCC unroll 8
      for (int n = 0; n < Columns; ++n) ws[n] = _mm512_load_si512(at + n * block_bytes + step * cache_line);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i) {
        std::int32_t four;
        std::memcpy(&four, values + i * stride + g * Int8Layout::group + 4 * step, sizeof four);
        const __m512i xs = _mm512_set1_epi32(four);
#pragma GCC unroll 8
        for (int n = 0; n < Columns; ++n) whole[i][n] = _mm512_dpbusd_epi32(whole[i][n], ws[n], xs);
      }
    }
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n) {
      const __m512 scale = _mm512_load_ps(at + n * block_bytes + Int8Layout::scales_at);
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i)
        sum[i][n] = _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(0xFFFF, whole[i][n]),
                                    _mm512_mul_ps(scale, _mm512_set1_ps(scales[i * groups + g])), sum[i][n]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int n = 0; n < Columns; ++n)
      _mm512_mask_storeu_ps(out.y + (first + i) * out.ldy + 16 * n, out.some[n], sum[i][n]);
}

#undef RLALGO_AVX512_VNNI

class Int8Product {
 public:
  explicit Int8Product(const LinearArgs& a)
      : a_(a), x_(int8_rows<std::int8_t>(a, quantize_row)), block_bytes_(Int8Layout(a.k).block_bytes()) {}

  void run() const {
    std::int64_t block = a_.begin / Int8Layout::rows;
    const std::int64_t end = Int8Layout::blocks(a_.end);
    if (a_.m == 1)
      for (; block + 4 <= end; block += 4) blocks<4, 1>(block);
    for (; block + 2 <= end; block += 2) blocks<2, most_rows>(block);
    for (; block < end; ++block) blocks<1, most_rows>(block);
  }

 private:
  static constexpr int most_rows = 6;

  // All rows of x by `Columns` blocks of W, in tiles of nearly the same height.
  template <int Columns, int Rows>
  void blocks(std::int64_t block) const {
    const std::int64_t tiles = (a_.m + Rows - 1) / Rows, rows = a_.m / tiles, higher = a_.m - rows * tiles;
    const std::int64_t ahead = std::max(prefetch_distance / Columns, Columns * block_bytes_);
    const auto* const w = static_cast<const std::byte*>(a_.w) + block * block_bytes_;
    Int8Out out{.y = a_.y + block * Int8Layout::rows - a_.begin, .ldy = a_.ldy, .some = {}};
    for (std::int64_t n = 0; n < Columns; ++n)
      out.some[n] = tensor::lanes::within((block + n) * Int8Layout::rows, a_.begin, a_.end);
    for (std::int64_t row = 0, t = 0; t < tiles; ++t) {
      const std::int64_t height = t < higher ? rows + 1 : rows;
      tile<Columns, Rows>(height, row, w, out, ahead, t, tiles);
      row += height;
    }
  }

  template <int Columns, int Rows>
  void tile(std::int64_t rows, std::int64_t first, const std::byte* w, const Int8Out& out, std::int64_t ahead,
            std::int64_t phase, std::int64_t period) const {
    if (rows == Rows) return int8_tile<Columns, Rows>(x_, first, w, block_bytes_, out, ahead, phase, period);
    if constexpr (Rows > 1) tile<Columns, Rows - 1>(rows, first, w, out, ahead, phase, period);
  }

  const LinearArgs& a_;
  Int8Rows<> x_;
  std::int64_t block_bytes_;
};

inline void linear_int8(const LinearArgs& a) { Int8Product(a).run(); }

}  // namespace rlalgo::inference::detail::avx512_vnni

#endif
