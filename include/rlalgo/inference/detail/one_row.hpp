// What a pass on the CPU does with one row beside products: the embedding of its token, and a norm.
#pragma once

#include <algorithm>
#include <cstdint>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cpu/widen.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/detail/decoder_view.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/layer_spec.hpp>

namespace rlalgo::inference::detail {

inline void embed_row(const model::DecoderConfig& config, const Matrix& table, data::TokenId token, float* out) {
  const std::int64_t offset = static_cast<std::int64_t>(token) * table.columns;
  if (table.bf16) {
    const auto* from = static_cast<const std::uint16_t*>(table.data) + offset;
    for (std::int64_t j = 0; j < table.columns; ++j) out[j] = cpu::widen(from[j]);
  } else {
    std::copy_n(static_cast<const float*>(table.data) + offset, table.columns, out);
  }
  if (config.embedding_scale == 1.0) return;
  const auto scale = static_cast<float>(model::embedding_scale(config, table.bf16 ? at::kBFloat16 : at::kFloat));
  for (std::int64_t j = 0; j < table.columns; ++j) out[j] *= scale;
}

// Of n elements; out may be x.
inline void normalise_row(const cpu::Kernels& kernels, const model::NormSpec& norm, const float* x, const float* weight,
                          float* out, std::int64_t n) {
  if (norm.centred) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < n; ++j) sum += static_cast<double>(x[j]);
    const auto mean = static_cast<float>(sum / static_cast<double>(n));
    for (std::int64_t j = 0; j < n; ++j) out[j] = x[j] - mean;
    x = out;
  }
  kernels.rms_norm(x, weight, static_cast<float>(norm.epsilon), out, n);
}

}  // namespace rlalgo::inference::detail
