// Rotary position embedding in the half-split form of Llama and Qwen.
//
//   θ_i = p · inv_i,   (x_i, x_{i+D/2}) ← (x_i cos θ_i − x_{i+D/2} sin θ_i,  x_{i+D/2} cos θ_i + x_i sin θ_i),   i <
//   D/2
//
// Source: Su et al., arXiv 2104.09864, eq. 34 in the pairing of transformers' rotate_half; Llama 3's rescaling of inv:
// with wavelength λ = 2π/inv, O original positions: λ < O/high unchanged · λ > O/low inv/factor · between, with
// s = (O/λ − low)/(high − low), (1−s)·inv/factor + s·inv. Angles are computed in float32, as transformers does.
// The backward pass is the rotation by −θ.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pow.h>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

struct RopeTable {
  Tensor cosine, sine;  // [T, D/2] float32, one row per token
};

// inv_i, [D/2] float32.
[[nodiscard]] inline Tensor rope_frequencies(const RopeConfig& rope, std::int64_t head_dim) {
  const Tensor exponents =
      at::arange(0, head_dim, 2, at::TensorOptions().dtype(at::kFloat)).div_(static_cast<double>(head_dim));
  Tensor inverse = at::pow(at::Scalar(rope.theta), exponents).reciprocal_();
  if (rope.kind == RopeConfig::Kind::llama3) {
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
  return inverse;
}

[[nodiscard]] inline RopeTable rope_table(const Tensor& frequencies, std::span<const std::int64_t> positions) {
  Tensor angles = at::empty({static_cast<std::int64_t>(positions.size()), frequencies.size(0)}, frequencies.options());
  const float* inv = frequencies.const_data_ptr<float>();
  float* out = angles.mutable_data_ptr<float>();
  const std::int64_t half = frequencies.size(0);
  for (const std::int64_t position : positions) {
    for (std::int64_t i = 0; i < half; ++i) out[i] = static_cast<float>(position) * inv[i];
    out += half;
  }
  return {angles.cos(), angles.sin()};
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
