// cos and sin of the rotary embedding per position, from the model's own frequencies, in f32 as the training side has
// them.
//
//   angle = position · inv_i;  (x_i, x_{i+D/2}) ← (x_i cos − x_{i+D/2} sin, x_{i+D/2} cos + x_i sin)
//
// Dynamic RoPE scaling and the long factors of longrope begin beyond DecoderConfig::context_length(), where the engine ends
// every sequence; the table is that of shorter ones. The values are computed one by one (std::cos), so that an entry does not depend on how far the table
// reaches.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/rope.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

class RotaryTable {
 public:
  RotaryTable(const model::RopeConfig& rope, std::int64_t head_dim)
      : frequencies_(model::rope_frequencies(rope, head_dim)),
        half_(frequencies_.numel()),
        scale_(static_cast<float>(rope.attention_factor)) {}

  // Makes positions [0, count) available.
  void reserve(std::int64_t count) {
    const float* const inverse = frequencies_.const_data_ptr<float>();
    for (; positions_ < count; ++positions_)
      for (std::int64_t i = 0; i < half_; ++i) {
        const float angle = static_cast<float>(positions_) * inverse[i];
        cos_.push_back(std::cos(angle) * scale_);
        sin_.push_back(std::sin(angle) * scale_);
      }
  }

  // [D/2] each, of the angles at a position.
  [[nodiscard]] const float* cosines(std::int64_t position) const { return cos_.data() + position * half_; }
  [[nodiscard]] const float* sines(std::int64_t position) const { return sin_.data() + position * half_; }
  [[nodiscard]] std::int64_t half() const { return half_; }

 private:
  tensor::Tensor frequencies_;  // [D/2]
  std::int64_t half_;
  float scale_;
  std::int64_t positions_ = 0;
  std::vector<float> cos_, sin_;  // [positions, D/2]
};

// (x_2i, x_2i+1) by the i-th angle.
inline void rotate_interleaved(float* x, const float* cosines, const float* sines, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cosines[i] - b * sines[i];
    x[2 * i + 1] = b * cosines[i] + a * sines[i];
  }
}

}  // namespace rlalgo::inference::detail
