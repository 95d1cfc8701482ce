// The kernels with AVX2 and FMA: attention over pages, norms, activations, exponentials.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <rlalgo/cpu/detail/avx2_int8.hpp>
#include <rlalgo/cpu/detail/avx2_linear.hpp>
#include <rlalgo/cpu/detail/portable_kernels.hpp>
#include <rlalgo/cpu/kernels.hpp>

namespace rlalgo::cpu::avx2 {

// e^x by range reduction to |r| ≤ ln2/2 and a degree-6 polynomial (Cephes expf); relative error below 2 ulp. Results
// below the smallest normal number are 0; NaN stays NaN.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 exp_of(__m256 x) {
  x = _mm256_min_ps(_mm256_set1_ps(88.3762626647950f), x);
  const __m256 normal = _mm256_cmp_ps(x, _mm256_set1_ps(-87.33654f), _CMP_NLE_UQ);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504088896341f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(normal, _mm256_mul_ps(p, _mm256_castsi256_ps(power)));
}

[[gnu::target("avx2,fma")]] inline MaxResult maximum(const float* x, std::int64_t n) {
  const __m256 lowest = _mm256_set1_ps(-std::numeric_limits<float>::infinity());
  __m256 top[2] = {lowest, lowest};
  __m256 zero[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};  // Σ 0·x: NaN as soon as one x is not finite
  std::int64_t j = 0;
  for (; j + 2 * lane <= n; j += 2 * lane)
    for (int i = 0; i < 2; ++i) {
      const __m256 v = _mm256_loadu_ps(x + j + i * lane);
      top[i] = _mm256_max_ps(top[i], v);
      zero[i] = _mm256_fmadd_ps(v, _mm256_setzero_ps(), zero[i]);
    }
  for (; j < n; j += lane) {
    const __m256i some = first_lanes(std::min(lane, n - j));
    const __m256 v = _mm256_maskload_ps(x + j, some);
    top[0] = _mm256_max_ps(top[0], _mm256_blendv_ps(lowest, v, _mm256_castsi256_ps(some)));
    zero[0] = _mm256_fmadd_ps(v, _mm256_setzero_ps(), zero[0]);
  }
  float lanes[lane];
  _mm256_storeu_ps(lanes, _mm256_max_ps(top[0], top[1]));
  return {*std::max_element(lanes, lanes + lane), sum_lanes(_mm256_add_ps(zero[0], zero[1])) == 0.0f};
}

[[gnu::target("avx2,fma")]] inline float exp_sum(const float* x, float shift, float scale, float* out, std::int64_t n) {
  const __m256 s = _mm256_set1_ps(shift), f = _mm256_set1_ps(scale);
  __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  std::int64_t j = 0;
  for (; j + 2 * lane <= n; j += 2 * lane)
    for (int i = 0; i < 2; ++i) {
      const __m256 e = exp_of(_mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x + j + i * lane), s), f));
      if (out != nullptr) _mm256_storeu_ps(out + j + i * lane, e);
      sum[i] = _mm256_add_ps(sum[i], e);
    }
  for (; j < n; j += lane) {
    const __m256i some = first_lanes(std::min(lane, n - j));
    const __m256 e = _mm256_and_ps(_mm256_castsi256_ps(some),
                                   exp_of(_mm256_mul_ps(_mm256_sub_ps(_mm256_maskload_ps(x + j, some), s), f)));
    if (out != nullptr) _mm256_maskstore_ps(out + j, some, e);
    sum[0] = _mm256_add_ps(sum[0], e);
  }
  return sum_lanes(_mm256_add_ps(sum[0], sum[1]));
}

// One page of raw scores for `Heads` heads: every lane is a position. Fetches two other blocks of [d, page_positions] meanwhile.
template <int Heads>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void page_scores(const float* q, std::int64_t ldq,
                                                                        const float* keys, std::int64_t d,
                                                                        float* scores, std::int64_t lds,
                                                                        const float* soon, const float* later) {
  constexpr int width = page_positions / lane;
  __m256 sum[Heads][width];
  for (int h = 0; h < Heads; ++h)
    for (int c = 0; c < width; ++c) sum[h][c] = _mm256_setzero_ps();
  for (std::int64_t j = 0; j < d; ++j) {
    prefetch<page_positions * sizeof(float) / cache_line>(reinterpret_cast<const char*>(soon + j * page_positions));
    prefetch<page_positions * sizeof(float) / cache_line>(reinterpret_cast<const char*>(later + j * page_positions));
    __m256 qs[Heads];
#pragma GCC unroll 4
    for (int h = 0; h < Heads; ++h) qs[h] = _mm256_broadcast_ss(q + h * ldq + j);
#pragma GCC unroll 4
    for (int c = 0; c < width; ++c) {
      const __m256 key = _mm256_loadu_ps(keys + j * page_positions + c * lane);
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) sum[h][c] = _mm256_fmadd_ps(qs[h], key, sum[h][c]);
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int c = 0; c < width; ++c) _mm256_storeu_ps(scores + h * lds + c * lane, sum[h][c]);
}

// out[h, :Width·8] = Σ_t weight[h, t] · value[t, :Width·8], scaled by inverse[h]. Fetches a block of [d, page_positions] meanwhile.
template <int Heads, int Width>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void mix_values(const AttentionArgs& a, const float* weights,
                                                                       std::int64_t ldw, const float* inverse,
                                                                       std::int64_t column, float* out,
                                                                       const float* next) {
  __m256 sum[Heads][Width];
  for (int h = 0; h < Heads; ++h)
    for (int c = 0; c < Width; ++c) sum[h][c] = _mm256_setzero_ps();
  for (std::int64_t first = 0; first < a.length; first += page_positions) {
    const float* value = floats(a.pages[first / page_positions], a.value_offset) + column;
    const std::int64_t count = std::min(page_positions, a.length - first);
    for (std::int64_t t = 0; t < count; ++t, value += a.d) {
      if (next != nullptr && first == 0)
        for (std::int64_t j = 0; j < a.d; j += cache_line / sizeof(float))
          prefetch<1>(reinterpret_cast<const char*>(next + t * a.d + j));
      __m256 ws[Heads];
#pragma GCC unroll 4
      for (int h = 0; h < Heads; ++h) ws[h] = _mm256_broadcast_ss(weights + h * ldw + first + t);
#pragma GCC unroll 4
      for (int c = 0; c < Width; ++c) {
        const __m256 v = _mm256_loadu_ps(value + c * lane);
#pragma GCC unroll 4
        for (int h = 0; h < Heads; ++h) sum[h][c] = _mm256_fmadd_ps(ws[h], v, sum[h][c]);
      }
    }
  }
  for (int h = 0; h < Heads; ++h)
    for (int c = 0; c < Width; ++c)
      _mm256_storeu_ps(out + h * a.ldo + column + c * lane, _mm256_mul_ps(sum[h][c], _mm256_set1_ps(inverse[h])));
}

// Scores of one head become weights; what their sum is to be divided by, inverted.
[[gnu::target("avx2,fma")]] inline float weigh(const AttentionArgs& a, std::int64_t head, float* scores) {
  std::fill_n(scores, a.first, -std::numeric_limits<float>::infinity());  // becomes a weight of 0
  const float scale = bend_scores(a, scores);
  const float shift = maximum(scores, a.length).max;
  return 1.0f / (exp_sum(scores, shift, scale, scores, a.length) + of_sink(a, head, shift, scale));
}

template <int Heads>
[[gnu::target("avx2,fma")]] inline void attend(const AttentionArgs& a, std::int64_t head) {
  const std::int64_t pages = (a.length + page_positions - 1) / page_positions;
  const std::int64_t lds = pages * page_positions;
  for (std::int64_t p = 0; p < pages; ++p)
    page_scores<Heads>(a.q + head * a.ldq, a.ldq, floats(a.pages[p], a.key_offset), a.d, a.scores + p * page_positions,
                       lds, floats(a.pages[std::min(p + 1, pages - 1)], a.key_offset),
                       floats(a.pages[p], a.value_offset));
  float inverse[Heads];
  for (int h = 0; h < Heads; ++h) inverse[h] = weigh(a, head + h, a.scores + h * lds);
  float* const out = a.out + head * a.ldo;
  std::int64_t column = 0;
  const auto next = [&] { return head + Heads == a.group && column == 0 ? floats(a.next, 0) : nullptr; };
  for (; column + 4 * lane <= a.d; column += 4 * lane)
    mix_values<Heads, 4>(a, a.scores, lds, inverse, column, out, next());
  for (; column < a.d; column += lane) mix_values<Heads, 1>(a, a.scores, lds, inverse, column, out, next());
}

[[gnu::target("avx2,fma")]] inline void attention(const AttentionArgs& a) {
  std::int64_t head = 0;
  for (; head + 3 <= a.group; head += 3) attend<3>(a, head);
  if (head + 2 == a.group) attend<2>(a, head);
  if (head + 1 == a.group) attend<1>(a, head);
}

[[gnu::target("avx2,fma")]] inline void rms_norm(const float* x, const float* weight, float eps, float* out,
                                                 std::int64_t n) {
  __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  std::int64_t j = 0;
  for (; j + 2 * lane <= n; j += 2 * lane)
    for (int i = 0; i < 2; ++i) {
      const __m256 v = _mm256_loadu_ps(x + j + i * lane);
      sum[i] = _mm256_fmadd_ps(v, v, sum[i]);
    }
  for (; j < n; j += lane) {
    const __m256 v = load_first(x + j, std::min(lane, n - j));
    sum[0] = _mm256_fmadd_ps(v, v, sum[0]);
  }
  const float mean = sum_lanes(_mm256_add_ps(sum[0], sum[1])) / static_cast<float>(n);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  for (j = 0; j + lane <= n; j += lane)
    _mm256_storeu_ps(out + j, _mm256_mul_ps(_mm256_loadu_ps(weight + j),
                                            _mm256_mul_ps(_mm256_loadu_ps(x + j), _mm256_set1_ps(inverse))));
  for (; j < n; ++j) out[j] = weight[j] * (x[j] * inverse);
}

// gate·σ(a)·up with a = gate, or that of gelu
template <bool gelu>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 gated_product(__m256 gate, __m256 up) {
  const __m256 one = _mm256_set1_ps(1.0f);
  __m256 a = gate;
  if constexpr (gelu)
    a = _mm256_mul_ps(gate,
                      _mm256_fmadd_ps(_mm256_mul_ps(gate, gate), _mm256_set1_ps(gelu_cube), _mm256_set1_ps(gelu_root)));
  const __m256 e = exp_of(_mm256_sub_ps(_mm256_setzero_ps(), a));
  return _mm256_mul_ps(_mm256_div_ps(gate, _mm256_add_ps(one, e)), up);
}

template <bool gelu>
[[gnu::target("avx2,fma")]] inline void gated_multiply(float* gate, const float* up, std::int64_t n) {
  std::int64_t j = 0;
  for (; j + lane <= n; j += lane)
    _mm256_storeu_ps(gate + j, gated_product<gelu>(_mm256_loadu_ps(gate + j), _mm256_loadu_ps(up + j)));
  if (j < n) {
    const __m256i some = first_lanes(n - j);
    _mm256_maskstore_ps(gate + j, some,
                        gated_product<gelu>(_mm256_maskload_ps(gate + j, some), _mm256_maskload_ps(up + j, some)));
  }
}

[[gnu::target("avx2,fma")]] inline void add(float* x, const float* y, std::int64_t n) {
  std::int64_t j = 0;
  for (; j + lane <= n; j += lane)
    _mm256_storeu_ps(x + j, _mm256_add_ps(_mm256_loadu_ps(x + j), _mm256_loadu_ps(y + j)));
  for (; j < n; ++j) x[j] += y[j];
}

// Without FMA, which would round otherwise than the portable one.
[[gnu::target("avx2")]] inline void rotate(float* x, float* y, const float* cosines, const float* sines,
                                           std::int64_t n) {
  std::int64_t i = 0;
  for (; i + lane <= n; i += lane) {
    const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(y + i);
    const __m256 c = _mm256_loadu_ps(cosines + i), s = _mm256_loadu_ps(sines + i);
    _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
  }
  portable::rotate(x + i, y + i, cosines + i, sines + i, n - i);
}

inline constexpr Kernels kernels{
    "avx2", linear<float>, linear<Bf16>, linear_int8, attention, rms_norm, gated_multiply<false>, gated_multiply<true>,
    add,    rotate,        maximum,      exp_sum};

[[nodiscard]] inline bool supported() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace rlalgo::cpu::avx2

#endif
