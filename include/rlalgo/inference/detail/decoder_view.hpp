// The trainer's weight tensors as raw pointers: nothing is copied but bf16 norms and biases (small), widened to f32.
//
// Errors: [rlalgo.inference.6] a weight tensor that the engine cannot read.
#pragma once

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/expert_adapter.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

struct Matrix {
  const void* data = nullptr;  // [rows, columns] row-major
  bool bf16 = false;
  const std::byte* packed = nullptr;  // the same as PackedWeights has made it, or null
  const model::QuantisedWeight* quantised =
      nullptr;                 // holds the numbers in 4 or 8 bits; `data` is null then, `bf16` what they are read as
  std::int64_t first_row = 0;  // of it
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  const float* bias = nullptr;  // [rows] or null
  // A low-rank adapter: y = row_scale ⊙ (W x + scale · B (A x)) + bias; rank 0 = none.
  const float* lora_a = nullptr;     // [rank, columns]
  const float* lora_b = nullptr;     // [rows, rank]
  const float* row_scale = nullptr;  // [rows] or null (DoRA)
  std::int64_t rank = 0;
  std::int64_t rank_offset = 0;  // first column of A x among the maps that read the same x
  float scale = 1.0f;
};

// Weights of norms, with the 1 of a unit offset; null = the layer has none there.
using LayerView = model::LayerParts<const float*, Matrix>;

struct DecoderView {
  Matrix embedding, head;  // [V, H]
  const float* final_norm = nullptr;
  std::vector<LayerView> layers;
  std::int64_t most_ranks = 0;                              // adapter columns of one input
  bool adapted_experts = false;                             // some expert has an adapter
  bool bf16 = false;                                        // of some matrix
  bool int8 = false;                                        // what is packed is in 8 bits
  void (*packed_linear)(const cpu::LinearArgs&) = nullptr;  // multiplies by it
  std::deque<std::vector<float>> widened;                   // owns what bf16 vectors and norms became
};

class DecoderViewer {
 public:
  DecoderViewer(const model::DecoderConfig& config, const model::DecoderWeights& weights)
      : config_(config), weights_(weights) {}

  // Reads the pointers anew, so that a trainer may replace tensors between calls.
  [[nodiscard]] DecoderView view() const {
    DecoderView view;
    const std::int64_t hidden = config_.hidden_size;
    view.embedding = matrix(view, {weights_.embedding, {}}, "embedding", config_.vocab_size, hidden);
    view.head = weights_.lm_head.defined()
                    ? matrix(view, {weights_.lm_head, {}, weights_.lm_head_lora}, "lm_head", config_.vocab_size, hidden)
                    : view.embedding;
    place(view, {&view.head});
    view.final_norm = norm(view, weights_.final_norm, "model.norm", hidden);
    if (static_cast<std::int64_t>(weights_.layers.size()) != config_.layers)
      reject("layers", std::to_string(weights_.layers.size()) + " layers", std::to_string(config_.layers));
    for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
      const model::LayerWeights& w = weights_.layers[i];
      LayerView& layer = view.layers.emplace_back();
      const std::string prefix = model::layer_prefix(i);
      const auto map = [&](std::string_view path, auto member, std::int64_t out, std::int64_t in, bool) {
        member(layer) = matrix(view, member(w), prefix + std::string(path), out, in);
      };
      model::visit_parts(
          config_, config_.spec(static_cast<std::int64_t>(i)),
          [&](std::string_view path, auto member, std::int64_t width) {
            member(layer) = norm(view, member(w), prefix + std::string(path), width);
          },
          map, map,
          [&](std::string_view name, auto member, const std::vector<std::int64_t>& shape, model::WeightRole) {
            const tensor::Tensor& value = member(w);
            const bool fits = value.defined() && value.sizes() == at::IntArrayRef(shape);
            if (!fits)
              reject(prefix + std::string(name), describe(value),
                     "[" + std::to_string(shape.front()) + (shape.size() > 1 ? ", …]" : "]"));
            member(layer) = vector(view, value.flatten(), prefix + std::string(name), value.numel());
          });
      const model::LayerSpec& spec = config_.spec(static_cast<std::int64_t>(i));
      if (spec.sinks) layer.sinks = vector(view, w.sinks, prefix + "self_attn.sinks", config_.heads);
      if (spec.fused_qkv) {
        place(view, {&layer.qkv_proj});
        const std::int64_t queries = config_.heads * config_.head_dim, keys = config_.kv_heads * config_.head_dim;
        layer.q_proj = rows_of(layer.qkv_proj, 0, queries);
        layer.k_proj = rows_of(layer.qkv_proj, queries, keys);
        layer.v_proj = rows_of(layer.qkv_proj, queries + keys, keys);
      } else {
        place(view, {&layer.q_proj, &layer.k_proj, &layer.v_proj});
      }
      place(view, {&layer.in_proj_qkv, &layer.in_proj_z, &layer.in_proj_b, &layer.in_proj_a});
      place(view, {&layer.in_proj_qkvz, &layer.in_proj_ba});
      place(view, {&layer.o_proj});
      if (spec.fused_gate_up) {
        place(view, {&layer.gate_up_proj});
        layer.gate_proj = rows_of(layer.gate_up_proj, 0, config_.intermediate_size);
        layer.up_proj = rows_of(layer.gate_up_proj, config_.intermediate_size, config_.intermediate_size);
      } else {
        place(view, {&layer.gate_proj, &layer.up_proj});
      }
      place(view, {&layer.down_proj});
      place(view, {&layer.shared.gate_proj, &layer.shared.up_proj, &layer.shared_gate});
      place(view, {&layer.shared.down_proj});
      if (spec.experts.count > 0) adapt_experts(view, w, spec.experts, prefix, layer);
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
    if (linear.quantised) return quantised_matrix(view, linear, name, rows, columns);
    if (!readable(w) || w.dim() != 2 || w.size(0) != rows || w.size(1) != columns)
      reject(name, describe(w), "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]");
    Matrix out{.data = w.const_data_ptr(),
               .bf16 = w.scalar_type() == at::kBFloat16,
               .rows = rows,
               .columns = columns,
               .bias = linear.bias.defined() ? vector(view, linear.bias, name + ".bias", rows) : nullptr};
    if (linear.lora.defined()) add_adapter(view, linear, name, out);
    view.bf16 = view.bf16 || out.bf16;
    return out;
  }

  static Matrix quantised_matrix(DecoderView& view, const model::Linear& linear, const std::string& name,
                                 std::int64_t rows, std::int64_t columns) {
    const model::QuantisedWeight& w = *linear.quantised;
    if (!w.codes().device().is_cpu() || w.rows() != rows || w.columns() != columns)
      reject(name,
             "[" + std::to_string(w.rows()) + ", " + std::to_string(w.columns()) + "] in " +
                 std::string(model::name_of(w.code())),
             "[" + std::to_string(rows) + ", " + std::to_string(columns) + "] in the host's memory");
    Matrix out{.bf16 = w.compute() == at::kBFloat16,
               .quantised = &w,
               .rows = rows,
               .columns = columns,
               .bias = linear.bias.defined() ? vector(view, linear.bias, name + ".bias", rows) : nullptr};
    if (linear.lora.defined()) add_adapter(view, linear, name, out);
    view.bf16 = view.bf16 || out.bf16;
    return out;
  }

  // Rows [first, first + count) of a fused map, which read the same A x.
  static Matrix rows_of(const Matrix& map, std::int64_t first, std::int64_t count) {
    Matrix out = map;
    out.rows = count;
    out.first_row = first;
    if (map.data != nullptr)
      out.data = static_cast<const std::byte*>(map.data) + first * map.columns * (map.bf16 ? 2 : 4);
    if (map.bias != nullptr) out.bias = map.bias + first;
    if (map.lora_b != nullptr) out.lora_b = map.lora_b + first * map.rank;
    if (map.row_scale != nullptr) out.row_scale = map.row_scale + first;
    return out;
  }

  static void add_adapter(DecoderView& view, const model::Linear& linear, const std::string& name, Matrix& out) {
    const model::Lora& lora = linear.lora;
    const auto readable_part = [&](const tensor::Tensor& t, const char* part, std::int64_t rows, std::int64_t columns) {
      if (!readable(t) || t.scalar_type() != at::kFloat || t.dim() != 2 || t.size(0) != rows || t.size(1) != columns)
        reject(name + part, describe(t), "f32 [" + std::to_string(rows) + ", " + std::to_string(columns) + "]");
      return t.const_data_ptr<float>();
    };
    out.rank = lora.a.size(0);
    out.lora_a = readable_part(lora.a, ".lora_A", out.rank, out.columns);
    out.lora_b = readable_part(lora.b, ".lora_B", out.rows, out.rank);
    out.scale = static_cast<float>(lora.scale);
    if (!lora.magnitude.defined()) return;
    const tensor::Tensor ratio = lora.magnitude.detach().div(model::adapted_norm(linear, lora).detach());
    const float* from = ratio.const_data_ptr<float>();
    out.row_scale = view.widened.emplace_back(from, from + out.rows).data();
  }

  // Every expert's part of an adapter of all of them: A in the memory of the whole, B copied.
  void adapt_experts(DecoderView& view, const model::LayerWeights& w, const model::ExpertSpec& spec,
                     const std::string& prefix, LayerView& layer) const {
    std::size_t which = 0;
    for (const model::detail::ExpertMap& map : model::detail::expert_maps(spec, config_.hidden_size)) {
      const model::Lora& all = which < 2 ? w.all_gate_up.lora : w.all_down.lora;
      const std::size_t part = which++;
      if (!all.defined()) continue;
      const std::string name = prefix + "mlp.experts." + std::string(map.joined);
      for (const auto& [tensor, rows, columns] :
           {std::tuple(&all.a, all.a.size(0), map.columns), std::tuple(&all.b, map.all_rows, all.b.size(1))})
        if (!readable(*tensor) || tensor->scalar_type() != at::kFloat || tensor->size(0) != rows ||
            tensor->size(1) != columns)
          reject(name, describe(*tensor), "f32 [" + std::to_string(rows) + ", " + std::to_string(columns) + "]");
      const std::int64_t rank = all.a.size(0) / spec.count;
      for (std::int64_t e = 0; e < spec.count; ++e) {
        auto& expert = layer.experts[static_cast<std::size_t>(e)];
        Matrix& out = part == 0 ? expert.gate_proj : part == 1 ? expert.up_proj : expert.down_proj;
        const tensor::Tensor b = model::detail::expert_b(all.b.detach(), e, spec.count, map.rows).contiguous();
        const float* const from = b.const_data_ptr<float>();
        out.lora_a = all.a.const_data_ptr<float>() + e * rank * map.columns;
        out.lora_b = view.widened.emplace_back(from, from + b.numel()).data();
        out.rank = rank;
        out.scale = static_cast<float>(all.scale);
      }
      view.most_ranks = std::max(view.most_ranks, rank);
      view.adapted_experts = true;
    }
  }

  // Gives maps of one input columns side by side for their A x.
  static void place(DecoderView& view, std::initializer_list<Matrix*> maps) {
    std::int64_t offset = 0;
    for (Matrix* map : maps) {
      map->rank_offset = offset;
      offset += map->rank;
    }
    view.most_ranks = std::max(view.most_ranks, offset);
  }

  const float* norm(DecoderView& view, const tensor::Tensor& t, const std::string& name, std::int64_t size) const {
    const float* const weight = vector(view, t, name, size);
    if (!config_.norm.unit_offset) return weight;
    std::vector<float>& shifted = view.widened.emplace_back(weight, weight + size);
    for (float& one : shifted) one += 1.0F;
    return shifted.data();
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
