// The angles of the rotary position embedding (operations.hpp rotates by them): θ_i = p · inv_i for position p.
//
// Source: Su et al., arXiv 2104.09864. Rescalings of inv, with O original positions:
//   linear   inv/factor
//   dynamic  θ ← θ·(factor·L/O − (factor − 1))^(D/(D−2)), L = max(O, longest sequence of the pass)
//   llama3   wavelength λ = 2π/inv: λ < O/high unchanged · λ > O/low inv/factor · between, with
//            s = (O/λ − low)/(high − low), (1−s)·inv/factor + s·inv
//   yarn     (Peng et al., arXiv 2309.00071) d(r) = D·ln(O/(2πr))/(2 ln θ), ramp from d(fast) to d(slow) clamped to
//            [0, 1]: inv·(1 − ramp) + inv/factor·ramp; cos and sin times attention_factor
//   longrope (Ding et al., arXiv 2402.13753) inv_i/short_i, or inv_i/long_i where the longest sequence of the pass is longer
//            than O; cos and sin times attention_factor
// D is the width that is rotated, of every head the first elements.
// Angles are computed in float32, as transformers does: for a pass on its device, of positions and inv.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <vector>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/host_block.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;

struct RopeTable {
  Tensor cosine, sine;       // [T, D/2] float32, one row per token
  bool interleaved = false;  // RopeConfig::interleaved
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

// powers_i · factor_i
inline void stretch(const std::vector<double>& factors, Tensor& powers) {
  float* values = powers.mutable_data_ptr<float>();
  for (std::size_t i = 0; i < factors.size(); ++i) values[i] *= static_cast<float>(factors[i]);
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

// inv_i, [D/2] float32 in host memory, for sequences of at most `length` tokens (which matters to the dynamic kind and to
// longrope).
[[nodiscard]] inline Tensor rope_frequencies(const RopeConfig& rope, std::int64_t head_dim, std::int64_t length = 0) {
  const std::int64_t width = rope.rotated(head_dim);
  double theta = rope.theta;
  if (rope.kind == RopeConfig::Kind::dynamic) {
    const double original = rope.original_max_position_embeddings, d = static_cast<double>(width);
    const double longest = std::max(static_cast<double>(length), original);
    theta *= std::pow(rope.factor * longest / original - (rope.factor - 1.0), d / (d - 2.0));
  }
  const Tensor exponents =
      tensor::arange(0, width, 2, at::TensorOptions().dtype(at::kFloat)).div_(static_cast<double>(width));
  Tensor inverse = tensor::power(at::Scalar(theta), exponents);
  if (rope.kind == RopeConfig::Kind::longrope) {
    const bool longer = static_cast<double>(length) > rope.original_max_position_embeddings;
    detail::stretch(longer ? rope.long_factor : rope.short_factor, inverse);
  }
  inverse.reciprocal_();
  if (rope.kind == RopeConfig::Kind::linear) inverse.div_(rope.factor);
  if (rope.kind == RopeConfig::Kind::llama3) detail::rescale_llama3(rope, inverse);
  if (rope.kind == RopeConfig::Kind::yarn) detail::rescale_yarn(rope, width, inverse);
  return inverse;
}

// What the angles of a pass are made of, on its device once the block is sent; on the CPU the angles themselves.
struct RopeAngles {
  Tensor positions = {}, inverse = {};  // [T, 1], [1, D/2] float32
  Tensor whole = {};                    // [T, D/2]
};

namespace detail {

[[nodiscard]] inline Tensor angles_here(const Tensor& frequencies, std::span<const std::int64_t> positions) {
  Tensor angles =
      tensor::empty({static_cast<std::int64_t>(positions.size()), frequencies.size(0)}, frequencies.options());
  const float* inv = frequencies.const_data_ptr<float>();
  float* out = angles.mutable_data_ptr<float>();
  const std::int64_t half = frequencies.size(0);
  for (const std::int64_t position : positions) {
    for (std::int64_t i = 0; i < half; ++i) out[i] = static_cast<float>(position) * inv[i];
    out += half;
  }
  return angles;
}

[[nodiscard]] inline RopeTable table_of(const Tensor& angles, const RopeConfig& rope) {
  RopeTable table{angles.cos(), angles.sin(), rope.interleaved};
  if (rope.attention_factor != 1.0) {
    table.cosine.mul_(rope.attention_factor);
    table.sine.mul_(rope.attention_factor);
  }
  return table;
}

}  // namespace detail

[[nodiscard]] inline RopeAngles rope_angles(const Tensor& frequencies, std::span<const std::int64_t> positions,
                                            tensor::HostBlock& block) {
  if (block.device().is_cpu()) return {.whole = detail::angles_here(frequencies, positions)};
  std::vector<float> each(positions.begin(), positions.end());
  return {block.add(tensor::from_values(each, at::TensorOptions().dtype(at::kFloat)).unsqueeze(1)),
          block.add(frequencies.unsqueeze(0))};
}

// Of angles whose block is sent.
[[nodiscard]] inline RopeTable rope_table(const RopeAngles& angles, const RopeConfig& rope) {
  return detail::table_of(angles.whole.defined() ? angles.whole : angles.positions.mul(angles.inverse), rope);
}

[[nodiscard]] inline RopeTable rope_table(const Tensor& frequencies, std::span<const std::int64_t> positions,
                                          const RopeConfig& rope = {}, at::Device device = at::kCPU) {
  const RopeTable table = detail::table_of(detail::angles_here(frequencies, positions), rope);
  return {table.cosine.to(device), table.sine.to(device), rope.interleaved};
}

}  // namespace rlalgo::model
