// Blocks of logits with sixteen lanes, which are tokens: what lies between two products of bfloat16_head_impl.hpp.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <cmath>
#include <cstdint>

#include <c10/util/BFloat16.h>

#include <rlalgo/cpu/lanes.hpp>

namespace rlalgo::tensor::logit_rows {

namespace lanes = cpu::lanes;

// Products w·h of words and tokens: word v's are at data[v · stride].
struct Block {
  const float* data;
  std::int64_t stride, words, tokens;
  const float* bias;  // of its words, over T; or null
  float inverse;      // 1/T

  [[nodiscard, RLALGO_LANES, gnu::always_inline]] __m512 logit(std::int64_t v, std::int64_t n, __mmask16 some) const {
    const __m512 shift = _mm512_set1_ps(bias == nullptr ? 0.0f : bias[v]);
    return _mm512_fmadd_ps(lanes::load(data + v * stride + n, some), _mm512_set1_ps(inverse), shift);
  }
};

// The running sums of each token: top = max l, sum = Σ exp(l − top), moment = Σ exp(l − top)(l − top), null where nobody asks.
template <bool Moment>
[[RLALGO_LANES]] inline void reduce(const Block& block, float* top, float* sum, float* moment) {
  for (std::int64_t n = 0; n < block.tokens; n += lanes::count) {
    const __mmask16 some = lanes::first(block.tokens - n);
    const __m512 before = lanes::load(top + n, some);
    __m512 peak = before;
    for (std::int64_t v = 0; v < block.words; ++v) peak = _mm512_maskz_max_ps(some, peak, block.logit(v, n, some));
    // Of a token without words so far the sums are 0, and stay so.
    const __mmask16 known = _mm512_cmp_ps_mask(before, _mm512_set1_ps(-INFINITY), _CMP_NEQ_UQ);
    const __m512 shift = _mm512_maskz_sub_ps(known, before, peak), factor = lanes::exp(shift);
    const __m512 old = lanes::load(sum + n, some);
    __m512 z = _mm512_mul_ps(old, factor), e = _mm512_setzero_ps();
    if constexpr (Moment) e = _mm512_mul_ps(_mm512_fmadd_ps(shift, old, lanes::load(moment + n, some)), factor);
    for (std::int64_t v = 0; v < block.words; ++v) {
      const __m512 below = _mm512_sub_ps(block.logit(v, n, some), peak), power = lanes::exp(below);
      z = _mm512_add_ps(z, power);
      if constexpr (Moment) e = _mm512_fmadd_ps(power, below, e);
    }
    lanes::store(top + n, some, peak);
    lanes::store(sum + n, some, z);
    if constexpr (Moment) lanes::store(moment + n, some, e);
  }
}

// What a token brings to its gradients; `of_entropy` and `entropy` are null where nobody asks.
struct Tokens {
  const float* log_sum;
  const float* of_log_prob;  // g/T
  const float* of_entropy;   // e/T
  const float* entropy;

  [[nodiscard]] Tokens from(std::int64_t n) const {
    return {log_sum + n, of_log_prob + n, of_entropy == nullptr ? nullptr : of_entropy + n,
            entropy == nullptr ? nullptr : entropy + n};
  }
  // ∂/∂l of the target, of log-probability `log_prob`, of token n.
  [[nodiscard]] float of_target(std::int64_t n, float log_prob) const {
    const float p = std::exp(log_prob), own = of_log_prob[n] * (1.0f - p);
    return of_entropy == nullptr ? own : own - of_entropy[n] * p * (log_prob + entropy[n]);
  }
};

// out[v · stride + n] = ∂/∂l as if v were the target of no token: −g p − e p (log p + entropy).
template <bool Entropy>
[[RLALGO_LANES]] inline void differentiate(const Block& block, const Tokens& tokens, c10::BFloat16* out,
                                           std::int64_t stride) {
  for (std::int64_t n = 0; n < block.tokens; n += lanes::count) {
    const __mmask16 some = lanes::first(block.tokens - n);
    const __m512 log_sum = lanes::load(tokens.log_sum + n, some);
    const __m512 g = _mm512_sub_ps(_mm512_setzero_ps(), lanes::load(tokens.of_log_prob + n, some));
    __m512 s = _mm512_setzero_ps(), entropy = s;
    if constexpr (Entropy) {
      s = lanes::load(tokens.of_entropy + n, some);
      entropy = lanes::load(tokens.entropy + n, some);
    }
    for (std::int64_t v = 0; v < block.words; ++v) {
      const __m512 log_p = _mm512_sub_ps(block.logit(v, n, some), log_sum);
      __m512 factor = g;
      if constexpr (Entropy) factor = _mm512_fnmadd_ps(s, _mm512_add_ps(log_p, entropy), g);
      lanes::store(out + v * stride + n, some, _mm512_mul_ps(factor, lanes::exp(log_p)));
    }
  }
}

// Σ x[j]
[[nodiscard, RLALGO_LANES]] inline float total(const c10::BFloat16* x, std::int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t j = 0; j < n; j += lanes::count) sum = _mm512_add_ps(sum, lanes::load(x + j, lanes::first(n - j)));
  return lanes::sum(sum);
}

}  // namespace rlalgo::tensor::logit_rows

#endif
