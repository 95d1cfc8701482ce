// Names, shapes and roles of a decoder's tensors, as Hugging Face checkpoints spell them.
//
// H hidden, I intermediate, n heads, k key/value heads, d head_dim, V vocabulary. Loading, saving, initialising,
// copying, listing parameters, adapters and the engine's view of the weights all walk the one list of visit_parts().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/layer_spec.hpp>
#include <rlalgo/model/weights.hpp>

namespace rlalgo::model {

enum class WeightRole { matrix, bias, norm };

// The parts of an MLP of experts: routed(…) for the router and the experts that it chooses among, linear(…) for the rest.
// The list of a layer's experts gets its length where it may.
template <class Map, class Routed>
void visit_experts(const DecoderConfig& c, const ExpertSpec& e, Map&& linear, Routed&& routed) {
  const std::string block(e.block);
  routed(
      block + ".gate", [](auto& layer) -> auto& { return layer.router; }, e.count, c.hidden_size, false);
  const auto gated = [&](const std::string& path, auto of, std::int64_t width, auto&& visit, std::string_view gate,
                         std::string_view up, std::string_view down) {
    visit(
        path + std::string(gate), [of](auto& layer) -> auto& { return of(layer).gate_proj; }, width, c.hidden_size,
        false);
    visit(
        path + std::string(up), [of](auto& layer) -> auto& { return of(layer).up_proj; }, width, c.hidden_size, false);
    visit(
        path + std::string(down), [of](auto& layer) -> auto& { return of(layer).down_proj; }, c.hidden_size, width,
        false);
  };
  const auto count = static_cast<std::size_t>(e.count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto of = [i, count](auto& layer) -> auto& {
      if constexpr (!std::is_const_v<std::remove_reference_t<decltype(layer)>>)
        if (layer.experts.size() != count) layer.experts.resize(count);
      return layer.experts[i];
    };
    gated(block + ".experts." + std::to_string(i) + ".", of, e.width, routed, e.gate_proj, e.up_proj, e.down_proj);
  }
  if (e.shared_width == 0) return;
  gated(
      block + ".shared_expert.", [](auto& layer) -> auto& { return layer.shared; }, e.shared_width, linear,
      "gate_proj", "up_proj", "down_proj");
  linear(
      block + ".shared_expert_gate", [](auto& layer) -> auto& { return layer.shared_gate; }, 1, c.hidden_size, false);
}

// Of every part of such a layer, in the order of the list, one of
//   norm(path, member, width)                     its weight is [width]
//   linear(path, member, out, in, bias)           its weight is [out, in], its bias, if it has one, [out]
//   routed(path, member, out, in, bias)           the same of a map that carries no adapter: a router, an expert that it chooses
// where `path` is the part's below model.layers.N, and `member` gives it of any LayerParts.
template <class Norm, class Map, class Routed>
void visit_parts(const DecoderConfig& c, const LayerSpec& s, Norm&& norm, Map&& linear, Routed&& routed) {
  const std::int64_t hidden = c.hidden_size, queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim;
  const auto norm_if_named = [&](std::string_view path, auto member) {
    if (!path.empty()) norm(path, member, hidden);
  };
  norm_if_named(
      s.norms.attention, [](auto& layer) -> auto& { return layer.attention_norm; });
  linear(
      "self_attn.q_proj", [](auto& layer) -> auto& { return layer.q_proj; }, queries, hidden, s.qkv_bias);
  linear(
      "self_attn.k_proj", [](auto& layer) -> auto& { return layer.k_proj; }, keys, hidden, s.qkv_bias);
  linear(
      "self_attn.v_proj", [](auto& layer) -> auto& { return layer.v_proj; }, keys, hidden, s.qkv_bias);
  linear(
      "self_attn.o_proj", [](auto& layer) -> auto& { return layer.o_proj; }, hidden, queries, s.output_bias);
  if (s.head_norm) {
    norm(
        "self_attn.q_norm", [](auto& layer) -> auto& { return layer.q_norm; }, c.head_dim);
    norm(
        "self_attn.k_norm", [](auto& layer) -> auto& { return layer.k_norm; }, c.head_dim);
  }
  norm_if_named(
      s.norms.attention_output, [](auto& layer) -> auto& { return layer.attention_output_norm; });
  norm_if_named(
      s.norms.mlp, [](auto& layer) -> auto& { return layer.mlp_norm; });
  if (s.experts.count > 0) {
    visit_experts(c, s.experts, linear, routed);
  } else {
    const auto map = [&](std::string_view path, auto member, std::int64_t out, std::int64_t in) {
      s.mlp_adapters ? linear(path, member, out, in, s.mlp_bias) : routed(path, member, out, in, s.mlp_bias);
    };
    map(
        "mlp.gate_proj", [](auto& layer) -> auto& { return layer.gate_proj; }, c.intermediate_size, hidden);
    map(
        "mlp.up_proj", [](auto& layer) -> auto& { return layer.up_proj; }, c.intermediate_size, hidden);
    map(
        "mlp.down_proj", [](auto& layer) -> auto& { return layer.down_proj; }, hidden, c.intermediate_size);
  }
  norm_if_named(
      s.norms.mlp_output, [](auto& layer) -> auto& { return layer.mlp_output_norm; });
}

template <class Norm, class Map>
void visit_parts(const DecoderConfig& c, const LayerSpec& s, Norm&& norm, Map&& linear) {
  visit_parts(c, s, norm, linear, linear);
}

[[nodiscard]] inline std::string layer_prefix(std::size_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

// Calls visit(name, tensor, shape, role) for every tensor of the architecture; a tied lm_head is not visited. `Weights`
// is DecoderWeights or const DecoderWeights, its `layers` already of the right count.
template <class Weights, class Visit>
void visit_weights(const DecoderConfig& c, Weights& weights, Visit&& visit) {
  using Shape = std::vector<std::int64_t>;
  visit(std::string("model.embed_tokens.weight"), weights.embedding, Shape{c.vocab_size, c.hidden_size},
        WeightRole::matrix);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = weights.layers[i];
    const std::string prefix = layer_prefix(i);
    visit_parts(
        c, c.spec(static_cast<std::int64_t>(i)),
        [&](std::string_view path, auto member, std::int64_t width) {
          visit(prefix + std::string(path) + ".weight", member(layer), Shape{width}, WeightRole::norm);
        },
        [&](std::string_view path, auto member, std::int64_t out, std::int64_t in, bool bias) {
          auto& part = member(layer);
          visit(prefix + std::string(path) + ".weight", part.weight, Shape{out, in}, WeightRole::matrix);
          if (bias) visit(prefix + std::string(path) + ".bias", part.bias, Shape{out}, WeightRole::bias);
        });
  }
  visit(std::string("model.norm.weight"), weights.final_norm, Shape{c.hidden_size}, WeightRole::norm);
  if (!c.tied_embeddings) {
    visit(std::string("lm_head.weight"), weights.lm_head, Shape{c.vocab_size, c.hidden_size}, WeightRole::matrix);
  }
}

// Calls visit(path, lora, weight) for every linear map that can carry an adapter, in the order of the file, lm_head
// last (tied or not).
template <class Weights, class Visit>
void visit_loras(const DecoderConfig& c, Weights& weights, Visit&& visit) {
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = weights.layers[i];
    const std::string prefix = layer_prefix(i);
    visit_parts(
        c, c.spec(static_cast<std::int64_t>(i)), [](std::string_view, auto, std::int64_t) {},
        [&](std::string_view path, auto member, std::int64_t, std::int64_t, bool) {
          auto& part = member(layer);
          visit(prefix + std::string(path), part.lora, part.weight);
        },
        [](auto&&...) {});
  }
  visit(std::string("lm_head"), weights.lm_head_lora, weights.lm_head);
}

}  // namespace rlalgo::model
