// Products with a matrix in 4 or 8 bits (model/quantised_weight.hpp): its rows are made whole a few at a time, in memory that stays in the
// cache, and multiplied by the kernels for float32 or bfloat16. The numbers are those that training multiplies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/util/BFloat16.h>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/model/quantised_weight.hpp>

namespace rlalgo::inference::detail {

// What `args` asks for, with rows [first + begin, first + end) of `w`; `linear` reads float32, or bfloat16.
inline void multiply_quantised(const model::QuantisedWeight& w, std::int64_t first, bool bf16, cpu::LinearArgs args,
                               void (*linear)(const cpu::LinearArgs&)) {
  constexpr std::int64_t bytes_at_once = 128 * 1024, step = 8;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  thread_local std::vector<Line> lines;
  const std::int64_t row_bytes = std::max<std::int64_t>(1, args.k * (bf16 ? 2 : 4));
  const std::int64_t most = std::max(step, bytes_at_once / row_bytes / step * step);
  const auto needed = static_cast<std::size_t>((most * row_bytes + 63) / 64);
  if (lines.size() < needed) lines.resize(needed);
  const std::int64_t begin = args.begin, end = args.end;
  float* const y = args.y;
  args.w = lines.data();
  args.begin = 0;
  for (std::int64_t row = begin; row < end; row += most) {
    args.end = std::min(most, end - row);
    args.y = y + (row - begin);
    if (bf16)
      w.write_rows(first + row, args.end, reinterpret_cast<c10::BFloat16*>(lines.data()));
    else
      w.write_rows(first + row, args.end, reinterpret_cast<float*>(lines.data()));
    linear(args);
  }
}

}  // namespace rlalgo::inference::detail
