// yᵀ [n, i] as a block gives it, stored as rows of y.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

namespace rlalgo::inference::detail {

// y[i, n] = from[n, i] for `rows` of i and `columns` of n; row strides `stride` and `ldy`.
inline void store_turned(const float* from, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* y,
                         std::int64_t ldy) {
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    std::int64_t n = 0;
    for (; n + 4 <= columns; n += 4) {
      const float* const p = from + n * stride + i;
      __m128 a = _mm_loadu_ps(p), b = _mm_loadu_ps(p + stride), c = _mm_loadu_ps(p + 2 * stride),
             d = _mm_loadu_ps(p + 3 * stride);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      float* const to = y + i * ldy + n;
      _mm_storeu_ps(to, a);
      _mm_storeu_ps(to + ldy, b);
      _mm_storeu_ps(to + 2 * ldy, c);
      _mm_storeu_ps(to + 3 * ldy, d);
    }
    for (; n < columns; ++n)
      for (std::int64_t r = i; r < i + 4; ++r) y[r * ldy + n] = from[n * stride + r];
  }
  for (; i < rows; ++i)
    for (std::int64_t n = 0; n < columns; ++n) y[i * ldy + n] = from[n * stride + i];
}

}  // namespace rlalgo::inference::detail

#endif
