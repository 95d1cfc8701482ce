// y = x Wᵀ in 8 bits (quantization.hpp) in plain C++. Whole numbers are exact, and the others are added with one rounding in the order of groups,
// as every kernel does it: their results are the same, bit for bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <rlalgo/cpu/detail/int8_rows.hpp>
#include <rlalgo/cpu/int8_matrix.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu {

inline void quantize_row(const float* x, std::int64_t k, std::int8_t* values, float* scales, std::int32_t* offsets) {
  for (std::int64_t g = 0; g * Int8Layout::group < k; ++g) {
    float group[Int8Layout::group] = {};
    std::copy_n(x + g * Int8Layout::group, std::min(Int8Layout::group, k - g * Int8Layout::group), group);
    std::int32_t q[Int8Layout::group];
    scales[g] = quantize_group(group, q);
    std::int32_t sum = 0;
    for (std::int64_t j = 0; j < Int8Layout::group; ++j) {
      values[g * Int8Layout::group + j] = static_cast<std::int8_t>(q[j]);
      sum += q[j];
    }
    offsets[g] = -128 * sum;
  }
}

namespace portable {

inline void linear_int8(const LinearArgs& a) {
  const Int8Rows<> x = int8_rows<std::int8_t>(a, quantize_row);
  const Int8Layout layout(a.k);
  for (std::int64_t n = a.begin; n < a.end; ++n) {
    const std::int64_t row = n % rows_of_a_block;
    const auto* const block = static_cast<const std::byte*>(a.w) + n / rows_of_a_block * layout.block_bytes();
    for (std::int64_t i = 0; i < a.m; ++i) {
      float sum = 0.0f;
      for (std::int64_t g = 0; g < layout.groups; ++g) {
        const std::byte* const at = block + g * Int8Layout::group_bytes;
        std::int32_t whole = x.offsets[i * layout.groups + g];
        for (std::int64_t j = 0; j < Int8Layout::group; ++j)
          whole += x.row(i)[g * Int8Layout::group + j] *
                   std::to_integer<std::int32_t>(at[(j / 4 * rows_of_a_block + row) * 4 + j % 4]);
        const auto* const scales = reinterpret_cast<const float*>(at + Int8Layout::scales_at);
        sum = std::fma(static_cast<float>(whole), scales[row] * x.scales[i * layout.groups + g], sum);
      }
      a.y[i * a.ldy + n - a.begin] = sum;
    }
  }
}

}  // namespace portable

}  // namespace rlalgo::cpu
