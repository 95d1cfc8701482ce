// Rotary position embedding in the half-split form of Llama and Qwen.
//
//   θ_i = p · inv_i,   i < D/2
//   (x_i, x_{i+D/2}) ← (x_i cos θ_i − x_{i+D/2} sin θ_i,  x_{i+D/2} cos θ_i + x_i sin θ_i)
//
// Source: Su et al., arXiv 2104.09864, eq. 34 in the pairing of transformers' rotate_half. Rescalings of inv, with
// O original positions:
//   linear   inv/factor
//   dynamic  θ ← θ·(factor·L/O − (factor − 1))^(D/(D−2)), L = max(O, longest sequence of the pass)
//   llama3   wavelength λ = 2π/inv: λ < O/high unchanged · λ > O/low inv/factor · between, with
//            s = (O/λ − low)/(high − low), (1−s)·inv/factor + s·inv
//   yarn     (Peng et al., arXiv 2309.00071) d(r) = D·ln(O/(2πr))/(2 ln θ), ramp from d(fast) to d(slow) clamped to
//            [0, 1]: inv·(1 − ramp) + inv/factor·ramp; cos and sin times attention_factor
// Angles are computed in float32, as transformers does.
// The backward pass is the rotation by −θ (and the same factor).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

struct RopeTable {
  Tensor cosine, sine;  // [T, D/2] float32, one row per token
};

namespace detail {

inline void rescale_llama3(const RopeConfig& rope, Tensor& inverse) {
  const auto low_wavelength = static_cast<float>(rope.original_max_position_embeddings / rope.low_freq_factor);
  const auto high_wavelength = static_cast<float>(rope.original_max_position_embeddings / rope.high_freq_factor);
  float* inv = inverse.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < inverse.numel(); ++i) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / inv[i];
    if (wavelength > low_wavelength) {
      inv[i] /= static_cast<float>(rope.factor);
    } else if (wavelength >= high_wavelength) {
      const float smooth = (static_cast<float>(rope.original_max_position_embeddings) / wavelength -
                            static_cast<float>(rope.low_freq_factor)) /
                           static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
      inv[i] = (1.0F - smooth) * inv[i] / static_cast<float>(rope.factor) + smooth * inv[i];
    }
  }
}

inline void rescale_yarn(const RopeConfig& rope, std::int64_t head_dim, Tensor& inverse) {
  const auto d = static_cast<double>(head_dim);
  const auto dimension = [&](double rotations) {
    return d * std::log(rope.original_max_position_embeddings / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(rope.theta));
  };
  double low = dimension(rope.beta_fast), high = dimension(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, d - 1.0);
  if (low == high) high += 0.001;
  float* inv = inverse.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < inverse.numel(); ++i) {
    const float position = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float ramp = std::clamp(position, 0.0F, 1.0F);
    inv[i] = inv[i] / static_cast<float>(rope.factor) * ramp + inv[i] * (1.0F - ramp);
  }
}

}  // namespace detail

// inv_i, [D/2] float32, for sequences of at most `length` tokens (which matters to the dynamic kind only).
[[nodiscard]] inline Tensor rope_frequencies(const RopeConfig& rope, std::int64_t head_dim, std::int64_t length = 0) {
  double theta = rope.theta;
  if (rope.kind == RopeConfig::Kind::dynamic) {
    const double original = rope.original_max_position_embeddings, d = static_cast<double>(head_dim);
    const double longest = std::max(static_cast<double>(length), original);
    theta *= std::pow(rope.factor * longest / original - (rope.factor - 1.0), d / (d - 2.0));
  }
  const Tensor exponents =
      tensor::arange(0, head_dim, 2, at::TensorOptions().dtype(at::kFloat)).div_(static_cast<double>(head_dim));
  Tensor inverse = tensor::power(at::Scalar(theta), exponents).reciprocal_();
  if (rope.kind == RopeConfig::Kind::linear) inverse.div_(rope.factor);
  if (rope.kind == RopeConfig::Kind::llama3) detail::rescale_llama3(rope, inverse);
  if (rope.kind == RopeConfig::Kind::yarn) detail::rescale_yarn(rope, head_dim, inverse);
  return inverse;
}

[[nodiscard]] inline RopeTable rope_table(const Tensor& frequencies, std::span<const std::int64_t> positions,
                                          double attention_factor = 1.0) {
  Tensor angles =
      tensor::empty({static_cast<std::int64_t>(positions.size()), frequencies.size(0)}, frequencies.options());
  const float* inv = frequencies.const_data_ptr<float>();
  float* out = angles.mutable_data_ptr<float>();
  const std::int64_t half = frequencies.size(0);
  for (const std::int64_t position : positions) {
    for (std::int64_t i = 0; i < half; ++i) out[i] = static_cast<float>(position) * inv[i];
    out += half;
  }
  RopeTable table{angles.cos(), angles.sin()};
  if (attention_factor != 1.0) {
    table.cosine.mul_(attention_factor);
    table.sine.mul_(attention_factor);
  }
  return table;
}

enum class Rotation { forward, backward };

// Rotates x in place: [T, heads, D], contiguous, any number of heads.
inline void apply_rope(Tensor& x, const RopeTable& table, Rotation rotation = Rotation::forward) {
  const std::int64_t tokens = table.cosine.size(0), half = table.cosine.size(1);
  if (tokens == 0) return;
  const std::int64_t heads = x.numel() / (tokens * 2 * half);
  detail::dispatch_floating(x.scalar_type(), [&]<class T>(T) {
    using A = detail::Accumulator<T>;
    T* data = x.mutable_data_ptr<T>();
    const float* c = table.cosine.const_data_ptr<float>();
    const float* s = table.sine.const_data_ptr<float>();
    const A sign = rotation == Rotation::forward ? A(1) : A(-1);
    for (std::int64_t t = 0; t < tokens; ++t, c += half, s += half) {
      for (std::int64_t h = 0; h < heads; ++h, data += 2 * half) {
        for (std::int64_t i = 0; i < half; ++i) {
          const A low = static_cast<A>(data[i]), high = static_cast<A>(data[i + half]);
          const A cosine = static_cast<A>(c[i]), sine = sign * static_cast<A>(s[i]);
          data[i] = static_cast<T>(low * cosine - high * sine);
          data[i + half] = static_cast<T>(high * cosine + low * sine);
        }
      }
    }
  });
}

}  // namespace rlalgo::model
