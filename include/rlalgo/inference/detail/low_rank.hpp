// What an adapter adds to the product of a map, from its A x.
#pragma once

#include <algorithm>
#include <cstdint>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/detail/activations.hpp>
#include <rlalgo/inference/detail/decoder_view.hpp>
#include <rlalgo/inference/detail/phases.hpp>

namespace rlalgo::inference::detail {

// y ← row_scale ⊙ (y + scale · rank · Bᵀ) in small blocks.
inline void add_low_rank(const cpu::Kernels& kernels, const Activations& rank, const Matrix& w, PhaseRows of,
                         std::int64_t begin, std::int64_t end, float* y, std::int64_t ldy) {
  constexpr std::int64_t block_rows = 16, block_columns = 64;
  float block[block_rows * block_columns];
  for (std::int64_t i = 0; i < of.count; i += block_rows) {
    const std::int64_t rows = std::min(block_rows, of.count - i);
    for (std::int64_t n = begin; n < end; n += block_columns) {
      const std::int64_t columns = std::min(block_columns, end - n);
      kernels.linear_f32({.x = rank.row(of.first + i) + w.rank_offset,
                          .m = rows,
                          .k = w.rank,
                          .ldx = rank.stride(),
                          .w = w.lora_b,
                          .begin = n,
                          .end = n + columns,
                          .y = block,
                          .ldy = block_columns});
      for (std::int64_t r = 0; r < rows; ++r) {
        float* const out = y + (i + r) * ldy + n - begin;
        for (std::int64_t c = 0; c < columns; ++c) out[c] += w.scale * block[r * block_columns + c];
        if (w.row_scale == nullptr) continue;
        for (std::int64_t c = 0; c < columns; ++c) out[c] *= w.row_scale[n + c];
      }
    }
  }
}

}  // namespace rlalgo::inference::detail
