// cos and sin of the rotary embedding, per position, in f32 as the training side computes them.
//
//   inv_i = theta^(−2i/D), rescaled for Llama 3; angle = position · inv_i;
//   (x_i, x_{i+D/2}) ← (x_i cos − x_{i+D/2} sin, x_{i+D/2} cos + x_i sin)
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include <rlalgo/model/decoder_config.hpp>

namespace rlalgo::inference::detail {

class RotaryTable {
 public:
  RotaryTable(const model::RopeConfig& rope, std::int64_t head_dim) : half_(head_dim / 2) {
    for (std::int64_t i = 0; i < half_; ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
      inverse_.push_back(rescale(rope, 1.0f / static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)))));
    }
  }

  // Makes positions [0, count) available.
  void reserve(std::int64_t count) {
    for (std::int64_t position = positions_; position < count; ++position)
      for (const float inverse : inverse_) {
        const float angle = static_cast<float>(position) * inverse;
        cos_.push_back(std::cos(angle));
        sin_.push_back(std::sin(angle));
      }
    positions_ = std::max(positions_, count);
  }

  void rotate(float* x, std::int64_t position) const {
    const float* c = cos_.data() + position * half_;
    const float* s = sin_.data() + position * half_;
    for (std::int64_t i = 0; i < half_; ++i) {
      const float a = x[i];
      const float b = x[i + half_];
      x[i] = a * c[i] - b * s[i];
      x[i + half_] = b * c[i] + a * s[i];
    }
  }

 private:
  static float rescale(const model::RopeConfig& rope, float inverse) {
    if (rope.kind == model::RopeConfig::Kind::standard) return inverse;
    const double wavelength = 2.0 * std::numbers::pi / inverse;
    const double low = rope.original_max_position_embeddings / rope.low_freq_factor;
    const double high = rope.original_max_position_embeddings / rope.high_freq_factor;
    if (wavelength > low) return static_cast<float>(inverse / rope.factor);
    if (wavelength < high) return inverse;
    const double smooth = (rope.original_max_position_embeddings / wavelength - rope.low_freq_factor) /
                          (rope.high_freq_factor - rope.low_freq_factor);
    return static_cast<float>((1.0 - smooth) * inverse / rope.factor + smooth * inverse);
  }

  std::int64_t half_;
  std::int64_t positions_ = 0;
  std::vector<float> inverse_, cos_, sin_;  // [D/2], [positions, D/2]
};

}  // namespace rlalgo::inference::detail
