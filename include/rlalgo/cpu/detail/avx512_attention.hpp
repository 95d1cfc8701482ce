// Attention with sixteen lanes: the chains of multiply-adds are AVX2's, two registers of them in one, so the bits are too.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include <rlalgo/cpu/detail/avx2_kernels.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu::avx512 {

#define RLALGO_AVX512 gnu::target("avx2,fma,avx512f,avx512bw,avx512vl")

// One page of raw scores for `Heads` heads: every lane is a position. Fetches two other blocks of [d, page_positions] meanwhile.
template <int Heads>
[[RLALGO_AVX512, gnu::always_inline]] inline void page_scores(const float* q, std::int64_t ldq, const float* keys,
                                                              std::int64_t d, float* scores, std::int64_t lds,
                                                              const float* soon, const float* later,
                                                              std::int64_t later_bytes) {
  static_assert(page_positions == 32);
  __m512 sum[Heads][2];
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h) sum[h][0] = sum[h][1] = _mm512_setzero_ps();
  for (std::int64_t j = 0; j < d; ++j, keys += page_positions) {
    prefetch<2>(reinterpret_cast<const char*>(soon + j * page_positions));
    if (4 * j * page_positions < later_bytes) prefetch<2>(reinterpret_cast<const char*>(later + j * page_positions));
    const __m512 low = _mm512_loadu_ps(keys), high = _mm512_loadu_ps(keys + 16);
#pragma GCC unroll 4
    for (int h = 0; h < Heads; ++h) {
      const __m512 x = _mm512_set1_ps(q[h * ldq + j]);
      sum[h][0] = _mm512_fmadd_ps(x, low, sum[h][0]);
      sum[h][1] = _mm512_fmadd_ps(x, high, sum[h][1]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h) {
    _mm512_storeu_ps(scores + h * lds, sum[h][0]);
    _mm512_storeu_ps(scores + h * lds + 16, sum[h][1]);
  }
}

// out[h, :Width·16] = Σ_t weight[h, t] · value[t, :Width·16], scaled by inverse[h]. Fetches a block of [d, page_positions] meanwhile.
template <int Heads, int Width>
[[RLALGO_AVX512, gnu::always_inline]] inline void mix_values(const AttentionArgs& a, const float* weights,
                                                             std::int64_t ldw, const float* inverse,
                                                             std::int64_t column, float* out, const float* next) {
  __m512 sum[Heads][Width];
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 4
    for (int c = 0; c < Width; ++c) sum[h][c] = _mm512_setzero_ps();
  for (std::int64_t first = 0; first < a.length; first += page_positions) {
    const float* value = floats(a.pages[first / page_positions], a.value_offset) + column;
    const std::int64_t count = std::min(page_positions, a.length - first);
    for (std::int64_t t = 0; t < count; ++t, value += a.d) {
      if (next != nullptr && first == 0)
        for (std::int64_t j = 0; j < a.d; j += cache_line / static_cast<std::int64_t>(sizeof(float)))
          prefetch<1>(reinterpret_cast<const char*>(next + t * a.d + j));
      __m512 ws[Heads];
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) ws[h] = _mm512_set1_ps(weights[h * ldw + first + t]);
#pragma GCC unroll 4
      for (int c = 0; c < Width; ++c) {
        const __m512 v = _mm512_loadu_ps(value + 16 * c);
#pragma GCC unroll 4
        for (int h = 0; h < Heads; ++h) sum[h][c] = _mm512_fmadd_ps(ws[h], v, sum[h][c]);
      }
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 4
    for (int c = 0; c < Width; ++c)
      _mm512_storeu_ps(out + h * a.ldo + column + 16 * c, _mm512_mul_ps(sum[h][c], _mm512_set1_ps(inverse[h])));
}

template <int Heads>
[[RLALGO_AVX512]] inline void attend(const AttentionArgs& a, std::int64_t head) {
  const std::int64_t pages = (a.length + page_positions - 1) / page_positions;
  const std::int64_t lds = pages * page_positions;
  for (std::int64_t p = 0; p < pages; ++p)
    page_scores<Heads>(a.q + head * a.ldq, a.ldq, floats(a.pages[p], a.key_offset), a.d, a.scores + p * page_positions,
                       lds, floats(a.pages[std::min(p + 1, pages - 1)], a.key_offset),
                       floats(a.pages[p], a.value_offset), bytes_of_values(a, p, sizeof(float)));
  float inverse[Heads];
  for (int h = 0; h < Heads; ++h) inverse[h] = avx2::weigh(a, head + h, a.scores + h * lds);
  float* const out = a.out + head * a.ldo;
  std::int64_t column = 0;
  const auto next = [&] { return head + Heads == a.group && column == 0 ? floats(a.next, 0) : nullptr; };
  for (; column + 64 <= a.d; column += 64) mix_values<Heads, 4>(a, a.scores, lds, inverse, column, out, next());
  for (; column + 16 <= a.d; column += 16) mix_values<Heads, 1>(a, a.scores, lds, inverse, column, out, next());
  for (; column < a.d; column += lane) avx2::mix_values<Heads, 1>(a, a.scores, lds, inverse, column, out, next());
}

[[RLALGO_AVX512]] inline void attention(const AttentionArgs& a) {
  std::int64_t head = 0;
  for (; head + 4 <= a.group; head += 4) attend<4>(a, head);
  if (head + 3 == a.group) return attend<3>(a, head);
  if (head + 2 == a.group) return attend<2>(a, head);
  if (head + 1 == a.group) attend<1>(a, head);
}

#undef RLALGO_AVX512

}  // namespace rlalgo::cpu::avx512

#endif
