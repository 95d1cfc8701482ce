// A matrix in 8 bits (quantization.hpp) as the kernels read it: blocks of sixteen rows of W, which are sixteen columns of y; in a block, one
// group of 32 columns of W after the other.
//
//   group:  [8 steps][16 rows][4] bytes, q + 128; then [16] scales      576 bytes, from a cache line on
//
// Four neighbours of a row lie together because products of bytes are summed by fours. Rows and columns that the matrix does not have are zero.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/widen.hpp>

namespace rlalgo::cpu {

struct Int8Layout {
  static constexpr std::int64_t group = 32, steps = group / 4;
  static constexpr std::int64_t scales_at = group * rows_of_a_block, group_bytes = scales_at + rows_of_a_block * 4;

  explicit Int8Layout(std::int64_t columns) : groups((columns + group - 1) / group) {}

  [[nodiscard]] std::int64_t block_bytes() const { return groups * group_bytes; }

  std::int64_t groups;
};

// By the largest magnitude of a group: whether its values have a scale. Else they are zero: of a smaller one the inverse would be infinite, and
// what is not finite makes the scale no number.
[[nodiscard]] inline bool has_scale(float most) { return most >= 1e-30f && std::isfinite(most); }
[[nodiscard]] inline float scale_of_group(float most) {
  return has_scale(most) ? most / 127.0f : most < 1e-30f ? 0.0f : std::numeric_limits<float>::quiet_NaN();
}

// values[j] = round(x[j] / scale) of a group, to nearest even; the scale.
inline float quantize_group(const float* x, std::int32_t* values) {
  std::uint32_t largest = 0;  // of magnitudes as bits, in which what is no number is larger than all else
  for (std::int64_t j = 0; j < Int8Layout::group; ++j)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(x[j]) & 0x7FFFFFFFU);
  const float most = std::bit_cast<float>(largest);
  if (has_scale(most)) {
    // Adding 1.5 · 2²³ rounds to a whole number, which the low bits then hold.
    constexpr float rounder = 12582912.0f;
    const float inverse = 127.0f / most;
    for (std::int64_t j = 0; j < Int8Layout::group; ++j)
      values[j] = std::bit_cast<std::int32_t>(x[j] * inverse + rounder) - std::bit_cast<std::int32_t>(rounder);
  } else {
    std::fill_n(values, Int8Layout::group, 0);
  }
  return scale_of_group(most);
}

// Blocks [begin, end) of w [rows, columns], float or the bits of bfloat16, row-major, into their places of `out`.
template <class W>
inline void pack_int8(const W* w, std::int64_t rows, std::int64_t columns, std::int64_t begin, std::int64_t end,
                      std::byte* out) {
  const Int8Layout layout(columns);
  for (std::int64_t b = begin; b < end; ++b)
    for (std::int64_t g = 0; g < layout.groups; ++g) {
      std::byte* const at = out + b * layout.block_bytes() + g * Int8Layout::group_bytes;
      const std::int64_t some = std::min(Int8Layout::group, columns - g * Int8Layout::group);
      float scales[rows_of_a_block];
      for (std::int64_t r = 0; r < rows_of_a_block; ++r) {
        const std::int64_t row = b * rows_of_a_block + r;
        float x[Int8Layout::group] = {};
        if (row < rows)
          for (std::int64_t j = 0; j < some; ++j) x[j] = widen(w[row * columns + g * Int8Layout::group + j]);
        std::int32_t values[Int8Layout::group];
        scales[r] = quantize_group(x, values);
        for (std::int64_t step = 0; step < Int8Layout::steps; ++step)
          for (std::int64_t j = 0; j < 4; ++j)
            at[(step * rows_of_a_block + r) * 4 + j] = static_cast<std::byte>(values[4 * step + j] + 128);
      }
      std::memcpy(at + Int8Layout::scales_at, scales, sizeof scales);
    }
}

}  // namespace rlalgo::cpu
