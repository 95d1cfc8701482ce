// Rows of a block of attention scores, with sixteen lanes: what lies between two products of attention_impl.hpp.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <rlalgo/cpu/lanes.hpp>

namespace rlalgo::tensor::rows {

namespace lanes = cpu::lanes;

// The running softmax of a query: Σ exp(s_j − top) over the keys so far.
struct Running {
  float top, sum;
};

// The lanes of [begin, end) in the register from `j` on.
[[nodiscard]] inline __mmask16 within(std::int64_t j, std::int64_t begin, std::int64_t end) {
  return static_cast<__mmask16>(lanes::first(end - j) & ~lanes::first(begin - j));
}

// What scores become before softmax: scale·s, or, with a cap c, c·tanh(scale·s/c).
struct ScoreMap {
  float scale, cap;  // cap 0: none
};

// tanh(scale·s/c)
[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline __m512 bent(__m512 s, const ScoreMap& map) {
  return lanes::tanh(_mm512_mul_ps(s, _mm512_set1_ps(map.scale / map.cap)));
}

// p[j] = exp(score[j] − top) of the keys [begin, end) of a row of `width`, 0 for the others, with the largest score so far as top.
// Returns exp(top before − top), by which what was summed before is to be multiplied.
template <class T, bool capped>
[[RLALGO_LANES]] inline float weigh(const float* s, std::int64_t begin, std::int64_t end, std::int64_t width,
                                    const ScoreMap& map, Running& run, T* p) {
  const __m512 lowest = _mm512_set1_ps(-INFINITY), factor = _mm512_set1_ps(map.scale), cap = _mm512_set1_ps(map.cap);
  __m512 top = lowest;
  for (std::int64_t j = begin / lanes::count * lanes::count; j < end; j += lanes::count) {
    const __mmask16 seen = within(j, begin, end);
    const __m512 raw = lanes::load(s + j, seen);
    const __m512 score = capped ? _mm512_mul_ps(cap, bent(raw, map)) : _mm512_mul_ps(raw, factor);
    top = _mm512_mask_max_ps(top, seen, top, score);
  }
  const float before = run.top;
  run.top = std::max(before, lanes::largest(top));
  const __m512 shift = _mm512_set1_ps(run.top);
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t j = 0; j < width; j += lanes::count) {
    const __mmask16 seen = within(j, begin, end);
    const __m512 raw = lanes::load(s + j, seen);
    const __m512 each =
        lanes::exp(capped ? _mm512_fmsub_ps(cap, bent(raw, map), shift) : _mm512_fmsub_ps(raw, factor, shift));
    const __m512 kept = _mm512_maskz_mov_ps(seen, each);
    sum = _mm512_add_ps(sum, kept);
    lanes::store(p + j, lanes::first(width - j), kept);
  }
  const float change = before == run.top ? 1.0f : std::exp(before - run.top);
  run.sum = run.sum * change + lanes::sum(sum);
  return change;
}

// p[j] = exp(score[j] − log_sum) and d[j] = p[j]·(g[j] − along)·∂score/∂s of the keys [begin, end), 0 for the others.
template <class T, bool capped>
[[RLALGO_LANES]] inline void differentiate(const float* s, const float* g, std::int64_t begin, std::int64_t end,
                                           std::int64_t width, const ScoreMap& map, float log_sum, float along, T* p,
                                           T* d) {
  const __m512 factor = _mm512_set1_ps(map.scale), shift = _mm512_set1_ps(log_sum), mean = _mm512_set1_ps(along),
               cap = _mm512_set1_ps(map.cap), one = _mm512_set1_ps(1.0f);
  for (std::int64_t j = 0; j < width; j += lanes::count) {
    const __mmask16 seen = within(j, begin, end), some = lanes::first(width - j);
    const __m512 raw = lanes::load(s + j, seen);
    __m512 score = _mm512_setzero_ps(), slope = factor;
    if constexpr (capped) {
      const __m512 t = bent(raw, map);
      score = _mm512_fmsub_ps(cap, t, shift);
      slope = _mm512_mul_ps(factor, _mm512_fnmadd_ps(t, t, one));
    } else {
      score = _mm512_fmsub_ps(raw, factor, shift);
    }
    const __m512 each = _mm512_maskz_mov_ps(seen, lanes::exp(score));
    const __m512 pull = _mm512_mul_ps(_mm512_mul_ps(each, _mm512_sub_ps(lanes::load(g + j, seen), mean)), slope);
    lanes::store(p + j, some, each);
    lanes::store(d + j, some, _mm512_maskz_mov_ps(seen, pull));
  }
}

// Σ a[j]·b[j]
template <class T>
[[nodiscard, RLALGO_LANES]] inline float dot(const T* a, const T* b, std::int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    sum = _mm512_fmadd_ps(lanes::load(a + j, some), lanes::load(b + j, some), sum);
  }
  return lanes::sum(sum);
}

// x[j] ← factor·x[j]
[[RLALGO_LANES]] inline void multiply(float* x, float factor, std::int64_t n) {
  const __m512 f = _mm512_set1_ps(factor);
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    lanes::store(x + j, some, _mm512_mul_ps(lanes::load(x + j, some), f));
  }
}

// out[j] = factor·x[j], or that more than it held
template <class T>
[[RLALGO_LANES]] inline void put(const float* x, float factor, bool adds, T* out, std::int64_t n) {
  const __m512 f = _mm512_set1_ps(factor);
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    __m512 value = _mm512_mul_ps(lanes::load(x + j, some), f);
    if (adds) value = _mm512_add_ps(value, lanes::load(out + j, some));
    lanes::store(out + j, some, value);
  }
}

// out[j] = x[j], or the sum of both
template <class T>
[[RLALGO_LANES]] inline void take(const T* x, bool adds, float* out, std::int64_t n) {
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    const __m512 value = lanes::load(x + j, some);
    lanes::store(out + j, some, adds ? _mm512_add_ps(value, lanes::load(out + j, some)) : value);
  }
}

}  // namespace rlalgo::tensor::rows

#endif
