// The kernels in plain C++: eight running sums per dot product, so that any compiler can vectorise them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <rlalgo/cpu/detail/portable_int8.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/widen.hpp>

namespace rlalgo::cpu::portable {

// The sum of eight lanes, always in this order.
inline float sum_lanes(const float* s) { return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])); }

// e^x by range reduction to |r| ≤ ln2/2 and a degree-6 polynomial (Cephes expf); relative error below 2 ulp. Results
// below the smallest normal number are 0.
inline float exp_of(float x) {
  x = std::min(x, 88.3762626647950f);
  if (!(x > -87.33654f)) return x != x ? x : 0.0f;
  const float n = std::nearbyint(x * 1.44269504088896341f);
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}

template <class W>
inline void linear(const LinearArgs& a) {
  const W* weights = static_cast<const W*>(a.w);
  for (std::int64_t n = a.begin; n < a.end; ++n) {
    const W* w = weights + n * a.k;
    for (std::int64_t i = 0; i < a.m; ++i) {
      const float* x = a.x + i * a.ldx;
      float s[lane] = {};
      std::int64_t j = 0;
      for (; j + lane <= a.k; j += lane)
        for (std::int64_t l = 0; l < lane; ++l) s[l] += x[j + l] * widen(w[j + l]);
      for (std::int64_t l = 0; j < a.k; ++j, ++l) s[l] += x[j] * widen(w[j]);
      a.y[i * a.ldy + n - a.begin] = sum_lanes(s);
    }
  }
}

inline float exp_sum(const float* x, float shift, float scale, float* out, std::int64_t n) {
  float s[lane] = {};
  for (std::int64_t j = 0; j < n; ++j) {
    const float e = exp_of((x[j] - shift) * scale);
    if (out != nullptr) out[j] = e;
    s[j % lane] += e;
  }
  return sum_lanes(s);
}

inline MaxResult maximum(const float* x, std::int64_t n) {
  float m = -std::numeric_limits<float>::infinity();
  bool finite = true;
  for (std::int64_t j = 0; j < n; ++j) {
    m = std::max(m, x[j]);
    finite = finite && std::isfinite(x[j]);
  }
  return {m, finite};
}

inline void attention(const AttentionArgs& a) {
  const std::int64_t pages = (a.length + page_positions - 1) / page_positions;
  const std::int64_t lds = pages * page_positions;
  for (std::int64_t h = 0; h < a.group; ++h) {
    const float* q = a.q + h * a.ldq;
    float* s = a.scores + h * lds;
    for (std::int64_t p = 0; p < pages; ++p) {
      const float* keys = floats(a.pages[p], a.key_offset);
      float* page = s + p * page_positions;
      for (std::int64_t t = 0; t < page_positions; ++t) page[t] = 0.0f;
      for (std::int64_t j = 0; j < a.d; ++j)
        for (std::int64_t t = 0; t < page_positions; ++t) page[t] += q[j] * keys[j * page_positions + t];
    }
    std::fill_n(s, a.first, -std::numeric_limits<float>::infinity());  // becomes a weight of 0
    const float scale = bend_scores(a, s), shift = maximum(s, a.length).max;
    const float inverse = 1.0f / (exp_sum(s, shift, scale, s, a.length) + of_sink(a, h, shift, scale));
    float* out = a.out + h * a.ldo;
    for (std::int64_t j = 0; j < a.d; ++j) out[j] = 0.0f;
    for (std::int64_t t = 0; t < a.length; ++t) {
      const float* value = floats(a.pages[t / page_positions], a.value_offset) + (t % page_positions) * a.d;
      for (std::int64_t j = 0; j < a.d; ++j) out[j] += s[t] * value[j];
    }
    for (std::int64_t j = 0; j < a.d; ++j) out[j] *= inverse;
  }
}

inline void rms_norm(const float* x, const float* weight, float eps, float* out, std::int64_t n) {
  float s[lane] = {};
  for (std::int64_t j = 0; j < n; ++j) s[j % lane] += x[j] * x[j];
  const float inverse = 1.0f / std::sqrt(sum_lanes(s) / static_cast<float>(n) + eps);
  for (std::int64_t j = 0; j < n; ++j) out[j] = weight[j] * (x[j] * inverse);
}

inline void silu_multiply(float* gate, const float* up, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) gate[j] = gate[j] / (1.0f + exp_of(-gate[j])) * up[j];
}

// (1 + tanh y)/2 = σ(2y)
inline void gelu_tanh_multiply(float* gate, const float* up, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    const float x = gate[j], a = x * (gelu_root + gelu_cube * x * x);
    gate[j] = x / (1.0f + exp_of(-a)) * up[j];
  }
}

inline void add(float* x, const float* y, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) x[j] += y[j];
}

inline void rotate(float* x, float* y, const float* cosines, const float* sines, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float a = x[i], b = y[i];
    x[i] = a * cosines[i] - b * sines[i];
    y[i] = b * cosines[i] + a * sines[i];
  }
}

inline constexpr Kernels kernels{"portable", linear<float>, linear<std::uint16_t>, linear_int8, attention,
                                 rms_norm,   silu_multiply, gelu_tanh_multiply,    add,         rotate,
                                 maximum,    exp_sum};

}  // namespace rlalgo::cpu::portable
