// Attention over pages of bfloat16 with the products of AVX-512 BF16: two numbers of a sum at a time, sums in float32.
//
//   score[t] = scale · q̂·k_t      p_t = exp(score[t] − max)      out = Σ_t p̂_t v_t / Σ_t p_t        x̂: x rounded to bfloat16
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include <rlalgo/cpu/detail/avx512_kernels.hpp>
#include <rlalgo/cpu/detail/linear_strips.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/lanes.hpp>

namespace rlalgo::cpu::avx512_bf16 {

#define RLALGO_AVX512_BF16 gnu::target("avx2,fma,avx512f,avx512bw,avx512vl,avx512bf16")

[[nodiscard]] inline const std::uint16_t* pairs(const std::byte* page, std::int64_t offset) {
  return reinterpret_cast<const std::uint16_t*>(page + offset);
}

// Positions of whole pages.
[[nodiscard]] inline std::int64_t padded(std::int64_t length) {
  return (length + page_positions - 1) / page_positions * page_positions;
}

// One head's scores become p̂, bfloat16, at the beginning of where they were, 0 behind `length`; 1 / Σ p, the sink's among them.
[[RLALGO_AVX512_BF16]] inline float weigh_pairs(const AttentionArgs& a, std::int64_t head, float* scores) {
  namespace lanes = lanes;
  const float lowest = -std::numeric_limits<float>::infinity();
  std::fill_n(scores, a.first, lowest);  // becomes a weight of 0
  const float factor = bend_scores(a, scores);
  const std::int64_t all = padded(a.length);
  std::fill_n(scores + a.length, all - a.length, lowest);
  __m512 top = _mm512_set1_ps(lowest);
  for (std::int64_t t = 0; t < all; t += 16) top = _mm512_maskz_max_ps(0xFFFF, _mm512_loadu_ps(scores + t), top);
  const float largest = lanes::largest(top);
  const __m512 shift = _mm512_set1_ps(largest), scale = _mm512_set1_ps(factor);
  auto* const out = reinterpret_cast<std::byte*>(scores);
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t t = 0; t < all; t += 16) {
    const __m512 p = lanes::exp(_mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(scores + t), shift), scale));
    sum = _mm512_add_ps(sum, p);
    // Behind what is read next: 2 bytes of every 4.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * t), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(p)));
  }
  return 1.0f / (lanes::sum(sum) + avx512::of_sink(a, head, largest, factor));
}

[[RLALGO_AVX512_BF16, gnu::always_inline]] inline __m512bh both_of(const std::uint16_t* pair) {
  std::int32_t bits = 0;
  std::memcpy(&bits, pair, sizeof bits);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
}

template <int Heads>
[[RLALGO_AVX512_BF16, gnu::always_inline]] inline void pair_scores(const std::uint16_t* q, std::int64_t ldq,
                                                                   const std::uint16_t* keys, std::int64_t d,
                                                                   float* scores, std::int64_t lds, const char* soon,
                                                                   const char* later, std::int64_t later_bytes) {
  static_assert(page_positions == 32);
  __m512 sum[Heads][2];
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h) sum[h][0] = sum[h][1] = _mm512_setzero_ps();
  for (std::int64_t j = 0; j < d; j += 2, keys += 2 * page_positions) {
    prefetch<2>(soon + j * page_positions * 2);
    if (2 * j * page_positions < later_bytes) prefetch<2>(later + j * page_positions * 2);
    const auto low = reinterpret_cast<__m512bh>(_mm512_loadu_si512(keys)),
               high = reinterpret_cast<__m512bh>(_mm512_loadu_si512(keys + 32));
#pragma GCC unroll 4
    for (int h = 0; h < Heads; ++h) {
      const __m512bh x = both_of(q + h * ldq + j);
      sum[h][0] = _mm512_dpbf16_ps(sum[h][0], x, low);
      sum[h][1] = _mm512_dpbf16_ps(sum[h][1], x, high);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h) {
    _mm512_storeu_ps(scores + h * lds, sum[h][0]);
    _mm512_storeu_ps(scores + h * lds + 16, sum[h][1]);
  }
}

// out[h, :32] of the columns from `column` on.
template <int Heads>
[[RLALGO_AVX512_BF16, gnu::always_inline]] inline void mix_pairs(const AttentionArgs& a, const float* weights,
                                                                 std::int64_t ldw, const float* inverse,
                                                                 std::int64_t column, float* out) {
  __m512 sum[Heads][2];
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h) sum[h][0] = sum[h][1] = _mm512_setzero_ps();
  for (std::int64_t first = 0; first < a.length; first += page_positions) {
    const std::uint16_t* value = pairs(a.pages[first / page_positions], a.value_offset) + 2 * column;
    const std::int64_t count = std::min(page_positions, a.length - first);
    for (std::int64_t t = 0; t < count; t += 2, value += 2 * a.d) {
      // What was never written beside the last position may be no number.
      const __m512i seen = _mm512_set1_epi32(t + 1 < count ? -1 : 0xFFFF);
      const auto low = reinterpret_cast<__m512bh>(_mm512_and_si512(seen, _mm512_loadu_si512(value))),
                 high = reinterpret_cast<__m512bh>(_mm512_and_si512(seen, _mm512_loadu_si512(value + 32)));
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) {
        const __m512bh p = both_of(reinterpret_cast<const std::uint16_t*>(weights + h * ldw) + first + t);
        sum[h][0] = _mm512_dpbf16_ps(sum[h][0], p, low);
        sum[h][1] = _mm512_dpbf16_ps(sum[h][1], p, high);
      }
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < Heads; ++h)
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c)
      _mm512_storeu_ps(out + h * a.ldo + column + 16 * c, _mm512_mul_ps(sum[h][c], _mm512_set1_ps(inverse[h])));
}

template <int Heads>
[[RLALGO_AVX512_BF16]] inline void attend_pairs(const AttentionArgs& a, std::int64_t head) {
  const std::int64_t lds = padded(a.length), pages = lds / page_positions;
  const bool more = head + Heads < a.group;  // heads that read the first page again
  for (std::int64_t p = 0; p < pages; ++p) {
    const std::byte* const soon = more && p + 1 == pages ? a.pages[0] + a.key_offset : keys_after(a, p);
    pair_scores<Heads>(a.q_bf16 + head * a.ldq, a.ldq, pairs(a.pages[p], a.key_offset), a.d,
                       a.scores + p * page_positions, lds, reinterpret_cast<const char*>(soon),
                       reinterpret_cast<const char*>(a.pages[p] + a.value_offset),
                       bytes_of_values(a, p, sizeof(std::uint16_t)));
  }
  float inverse[Heads];
  for (int h = 0; h < Heads; ++h) inverse[h] = weigh_pairs(a, head + h, a.scores + h * lds);
  for (std::int64_t column = 0; column < a.d; column += pair_lane)
    mix_pairs<Heads>(a, a.scores, lds, inverse, column, a.out + head * a.ldo);
}

[[RLALGO_AVX512_BF16]] inline void attention_bf16(const AttentionArgs& a) {
  std::int64_t head = 0;
  for (; head + 4 <= a.group; head += 4) attend_pairs<4>(a, head);
  if (head + 3 == a.group) return attend_pairs<3>(a, head);
  if (head + 2 == a.group) return attend_pairs<2>(a, head);
  if (head + 1 == a.group) attend_pairs<1>(a, head);
}

#undef RLALGO_AVX512_BF16

}  // namespace rlalgo::cpu::avx512_bf16

#endif
