// Rows of norms, rotation and gated activations (operations.hpp has the formulas) with sixteen lanes, in float32 and bfloat16.
#pragma once

#include <cstdint>

#include <rlalgo/cpu/features.hpp>
#include <rlalgo/cpu/lanes.hpp>

namespace rlalgo::model::detail {

// Whether these are for T here.
template <class T>
[[nodiscard]] bool has_lane_rows() {
#if defined(__x86_64__)
  return sizeof(T) <= sizeof(float) && cpu::has_lanes();
#else
  return false;
#endif
}

#if defined(__x86_64__)

namespace lane_rows {

namespace lanes = cpu::lanes;

template <class T>
[[nodiscard, RLALGO_LANES]] inline float sum_of_squares(const T* x, std::int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __m512 v = lanes::load(x + j, lanes::first(n - j));
    sum = _mm512_fmadd_ps(v, v, sum);
  }
  return lanes::sum(sum);
}

// w, or 1 + w.
template <class T, bool unit_offset>
[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline __m512 norm_factor(const T* w, __mmask16 some) {
  const __m512 weight = lanes::load(w, some);
  return unit_offset ? _mm512_add_ps(weight, _mm512_set1_ps(1.0f)) : weight;
}

// y = round(x·scale)·w, or x·scale·w rounded once; w or 1 + w
template <bool unit_offset, bool once, class T>
[[RLALGO_LANES]] inline void normalise(const T* x, const T* w, float scale, T* y, std::int64_t n) {
  const __m512 s = _mm512_set1_ps(scale);
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    const __m512 wide = _mm512_mul_ps(lanes::load(x + j, some), s);
    const __m512 unit = once ? wide : lanes::rounded<T>(wide);
    lanes::store(y + j, some, _mm512_mul_ps(unit, norm_factor<T, unit_offset>(w + j, some)));
  }
}

// Σ w·g·x, w or 1 + w
template <bool unit_offset, class T>
[[nodiscard, RLALGO_LANES]] inline float weighted_dot(const T* w, const T* g, const T* x, std::int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    const __m512 weighted = _mm512_mul_ps(norm_factor<T, unit_offset>(w + j, some), lanes::load(g + j, some));
    sum = _mm512_fmadd_ps(weighted, lanes::load(x + j, some), sum);
  }
  return lanes::sum(sum);
}

// out (+)= w·g·scale − x·pull, w or 1 + w;   sum += g·x·scale, where there is one
template <bool unit_offset, class T>
[[RLALGO_LANES]] inline void pull_back(const T* w, const T* g, const T* x, float scale, float pull, bool adds, T* out,
                                       float* sum, std::int64_t n) {
  const __m512 s = _mm512_set1_ps(scale), p = _mm512_set1_ps(pull);
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    const __m512 scaled = _mm512_mul_ps(lanes::load(g + j, some), s), from = lanes::load(x + j, some);
    __m512 value = _mm512_fmsub_ps(norm_factor<T, unit_offset>(w + j, some), scaled, _mm512_mul_ps(from, p));
    if (adds) value = _mm512_add_ps(value, lanes::load(out + j, some));
    lanes::store(out + j, some, value);
    if (sum != nullptr) lanes::store(sum + j, some, _mm512_fmadd_ps(scaled, from, lanes::load(sum + j, some)));
  }
}

// (low, high) ← (low·cosine − high·sine, high·cosine + low·sine), the sine times `sign`
template <class T>
[[RLALGO_LANES]] inline void rotate(T* low, T* high, const float* cosine, const float* sine, float sign,
                                    std::int64_t n) {
  const __m512 direction = _mm512_set1_ps(sign);
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    const __m512 c = lanes::load(cosine + j, some), s = _mm512_mul_ps(direction, lanes::load(sine + j, some));
    const __m512 a = lanes::load(low + j, some), b = lanes::load(high + j, some);
    lanes::store(low + j, some, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
    lanes::store(high + j, some, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
  }
}

// 1 / (1 + e^−x)
[[nodiscard, RLALGO_LANES, gnu::always_inline]] inline __m512 sigmoid(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  return _mm512_div_ps(one, _mm512_add_ps(one, lanes::exp(_mm512_sub_ps(_mm512_setzero_ps(), x))));
}

// Activations act(x) = x·σ(a) with their a(x) and its slope.
struct Silu {
  [[nodiscard, RLALGO_LANES, gnu::always_inline]] static __m512 argument(__m512 x) { return x; }
  [[nodiscard, RLALGO_LANES, gnu::always_inline]] static __m512 slope(__m512) { return _mm512_set1_ps(1.0f); }
};

// a = √(8/π)·(x + 0.044715 x³), as (1 + tanh(y))/2 = σ(2y).
struct GeluTanh {
  static constexpr float root = 1.5957691216057308f, cube = root * 0.044715f;
  [[nodiscard, RLALGO_LANES, gnu::always_inline]] static __m512 argument(__m512 x) {
    return _mm512_mul_ps(x, _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(cube), _mm512_set1_ps(root)));
  }
  [[nodiscard, RLALGO_LANES, gnu::always_inline]] static __m512 slope(__m512 x) {
    return _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(3.0f * cube), _mm512_set1_ps(root));
  }
};

// out = round(act(gate))·up
template <class Act, class T>
[[RLALGO_LANES]] inline void gated(const T* gate, const T* up, T* out, std::int64_t n) {
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    const __m512 x = lanes::load(gate + j, some);
    const __m512 active = lanes::rounded<T>(_mm512_mul_ps(x, sigmoid(Act::argument(x))));
    lanes::store(out + j, some, _mm512_mul_ps(active, lanes::load(up + j, some)));
  }
}

// up ← grad·round(act(gate)),   gate ← round(grad·up)·act′(gate),   act′(x) = σ(a)·(1 + x·(1 − σ(a))·a′)
template <class Act, class T>
[[RLALGO_LANES]] inline void gated_backward(const T* grad, T* gate, T* up, std::int64_t n) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (std::int64_t j = 0; j < n; j += lanes::count) {
    const __mmask16 some = lanes::first(n - j);
    const __m512 g = lanes::load(grad + j, some), x = lanes::load(gate + j, some), s = sigmoid(Act::argument(x));
    const __m512 of_act = lanes::rounded<T>(_mm512_mul_ps(g, lanes::load(up + j, some)));
    const __m512 rise = _mm512_mul_ps(x, Act::slope(x));
    const __m512 slope = _mm512_mul_ps(s, _mm512_fmadd_ps(rise, _mm512_sub_ps(one, s), one));
    lanes::store(up + j, some, _mm512_mul_ps(g, lanes::rounded<T>(_mm512_mul_ps(x, s))));
    lanes::store(gate + j, some, _mm512_mul_ps(of_act, slope));
  }
}

}  // namespace lane_rows

#endif

}  // namespace rlalgo::model::detail
