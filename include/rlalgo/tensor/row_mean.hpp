// The mean of many rows, without a copy of them in another dtype.
//
//   m_j = 1/V Σ_i x_ij        x [V, H] → [H] in the dtype of x
//
// Of bfloat16 on a CPU with sixteen lanes: float32 sums over stretches of rows, which float64 sums join in order, rounded once; all
// else is ATen's mean. V ≥ 1.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <c10/util/BFloat16.h>

#include <rlalgo/cpu/features.hpp>
#include <rlalgo/cpu/lanes.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/on_threads.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

#if defined(__x86_64__)

namespace detail {

// sums[j] = Σ over rows [begin, end) of x, for columns up to 64 from `column` on.
[[RLALGO_LANES]] inline void sum_rows(const c10::BFloat16* x, std::int64_t begin, std::int64_t end, std::int64_t width,
                                      std::int64_t column, float* sums) {
  constexpr int parts = 4;
  __mmask16 some[parts];
  __m512 sum[parts];
#pragma GCC unroll 4
  for (int p = 0; p < parts; ++p) {
    some[p] = cpu::lanes::first(width - column - p * cpu::lanes::count);
    sum[p] = _mm512_setzero_ps();
  }
  for (std::int64_t i = begin; i < end; ++i) {
    const c10::BFloat16* const row = x + i * width + column;
#pragma GCC unroll 4
    for (int p = 0; p < parts; ++p)
      sum[p] = _mm512_add_ps(sum[p], cpu::lanes::load(row + p * cpu::lanes::count, some[p]));
  }
#pragma GCC unroll 4
  for (int p = 0; p < parts; ++p) cpu::lanes::store(sums + column + p * cpu::lanes::count, some[p], sum[p]);
}

}  // namespace detail

#endif

[[nodiscard]] inline Tensor mean_of_rows(const Tensor& x) {
#if defined(__x86_64__)
  if (x.scalar_type() == at::kBFloat16 && x.device().is_cpu() && x.is_contiguous() && cpu::has_lanes()) {
    constexpr std::int64_t stretch = 512;
    const std::int64_t rows = x.size(0), width = x.size(1), stretches = (rows + stretch - 1) / stretch;
    const auto* const from = x.const_data_ptr<c10::BFloat16>();
    std::vector<float> sums(static_cast<std::size_t>(stretches * width));
    on_stretches(rows, stretch, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t column = 0; column < width; column += 4 * cpu::lanes::count)
        detail::sum_rows(from, begin, end, width, column, sums.data() + begin / stretch * width);
    });
    Tensor out = empty({width}, x.options());
    auto* const to = out.mutable_data_ptr<c10::BFloat16>();
    for (std::int64_t j = 0; j < width; ++j) {
      double sum = 0.0;
      for (std::int64_t s = 0; s < stretches; ++s) sum += sums[static_cast<std::size_t>(s * width + j)];
      to[j] = c10::BFloat16(static_cast<float>(sum / static_cast<double>(rows)));
    }
    return out;
  }
#endif
  return x.mean(0);
}

}  // namespace rlalgo::tensor
