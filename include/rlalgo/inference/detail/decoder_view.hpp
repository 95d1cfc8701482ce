// The trainer's weight tensors as raw pointers: nothing is copied but bf16 norms and biases (small), widened to f32.
//
// Errors: [rlalgo.inference.6] a weight tensor that the engine cannot read.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <deque>
#include <sstream>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

struct Matrix {
  const void* data = nullptr;  // [rows, columns] row-major
  bool bf16 = false;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const float* bias = nullptr;  // [rows] or null
};

struct LayerView {
  const float *input_norm = nullptr, *post_attention_norm = nullptr;  // [H]
  const float *q_norm = nullptr, *k_norm = nullptr;                   // [d] or null
  Matrix q, k, v, o, gate, up, down;
};

struct DecoderView {
  Matrix embedding, head;  // [V, H]
  const float* final_norm = nullptr;
  std::vector<LayerView> layers;
  std::deque<std::vector<float>> widened;  // owns what bf16 vectors became
};

class DecoderViewer {
 public:
  DecoderViewer(const model::DecoderConfig& config, const model::DecoderWeights& weights)
      : config_(config), weights_(weights) {}

  // Reads the pointers anew, so that a trainer may replace tensors between calls.
  [[nodiscard]] DecoderView view() const {
    DecoderView view;
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t inner = config_.heads * config_.head_dim;
    const std::int64_t kv = config_.kv_heads * config_.head_dim;
    view.embedding = matrix(view, {weights_.embedding, {}}, "embedding", config_.vocab_size, hidden);
    view.head = weights_.lm_head.defined() ? matrix(view, {weights_.lm_head, {}}, "lm_head", config_.vocab_size, hidden)
                                           : view.embedding;
    view.final_norm = vector(view, weights_.final_norm, "final_norm", hidden);
    if (static_cast<std::int64_t>(weights_.layers.size()) != config_.layers)
      reject("layers", std::to_string(weights_.layers.size()) + " layers", std::to_string(config_.layers));
    for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
      const model::LayerWeights& w = weights_.layers[i];
      const std::string at = "layer " + std::to_string(i) + " ";
      LayerView& layer = view.layers.emplace_back();
      layer.input_norm = vector(view, w.input_norm, at + "input_norm", hidden);
      layer.post_attention_norm = vector(view, w.post_attention_norm, at + "post_attention_norm", hidden);
      if (w.q_norm.defined()) layer.q_norm = vector(view, w.q_norm, at + "q_norm", config_.head_dim);
      if (w.k_norm.defined()) layer.k_norm = vector(view, w.k_norm, at + "k_norm", config_.head_dim);
      layer.q = matrix(view, w.q_proj, at + "q_proj", inner, hidden);
      layer.k = matrix(view, w.k_proj, at + "k_proj", kv, hidden);
      layer.v = matrix(view, w.v_proj, at + "v_proj", kv, hidden);
      layer.o = matrix(view, w.o_proj, at + "o_proj", hidden, inner);
      layer.gate = matrix(view, w.gate_proj, at + "gate_proj", config_.intermediate_size, hidden);
      layer.up = matrix(view, w.up_proj, at + "up_proj", config_.intermediate_size, hidden);
      layer.down = matrix(view, w.down_proj, at + "down_proj", hidden, config_.intermediate_size);
    }
    return view;
  }

 private:
  [[noreturn]] static void reject(const std::string& name, const std::string& found, const std::string& expected) {
    core::raise(
        "inference", 6,
        {.what = "the engine cannot read a weight tensor",
         .found = found,
         .expected = expected,
         .where = name,
         .remedy = "generate with contiguous f32 or bf16 tensors on the CPU, shaped as the configuration says"});
  }

  static std::string describe(const tensor::Tensor& t) {
    std::ostringstream out;
    if (!t.defined()) return "no tensor";
    out << t.scalar_type() << ' ' << t.sizes() << " on " << t.device() << (t.is_contiguous() ? "" : ", not contiguous");
    return out.str();
  }

  static bool readable(const tensor::Tensor& t) {
    return t.defined() && t.device().is_cpu() && t.is_contiguous() &&
           (t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16);
  }

  static Matrix matrix(DecoderView& view, const model::Linear& linear, const std::string& name, std::int64_t rows,
                       std::int64_t columns) {
    const tensor::Tensor& w = linear.weight;
    if (!readable(w) || w.dim() != 2 || w.size(0) != rows || w.size(1) != columns)
      reject(name, describe(w), "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]");
    return {.data = w.const_data_ptr(),
            .bf16 = w.scalar_type() == at::kBFloat16,
            .rows = rows,
            .columns = columns,
            .bias = linear.bias.defined() ? vector(view, linear.bias, name + ".bias", rows) : nullptr};
  }

  static const float* vector(DecoderView& view, const tensor::Tensor& t, const std::string& name, std::int64_t size) {
    if (!readable(t) || t.dim() != 1 || t.size(0) != size) reject(name, describe(t), "[" + std::to_string(size) + "]");
    if (t.scalar_type() == at::kFloat) return t.const_data_ptr<float>();
    const c10::BFloat16* from = t.const_data_ptr<c10::BFloat16>();
    return view.widened.emplace_back(from, from + size).data();
  }

  const model::DecoderConfig& config_;
  const model::DecoderWeights& weights_;
};

}  // namespace rlalgo::inference::detail
