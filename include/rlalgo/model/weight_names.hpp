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

// Each part of any LayerParts.
namespace parts {

inline constexpr auto attention_norm = [](auto& layer) -> auto& { return layer.attention_norm; };
inline constexpr auto q_proj = [](auto& layer) -> auto& { return layer.q_proj; };
inline constexpr auto k_proj = [](auto& layer) -> auto& { return layer.k_proj; };
inline constexpr auto v_proj = [](auto& layer) -> auto& { return layer.v_proj; };
inline constexpr auto qkv_proj = [](auto& layer) -> auto& { return layer.qkv_proj; };
inline constexpr auto o_proj = [](auto& layer) -> auto& { return layer.o_proj; };
inline constexpr auto q_norm = [](auto& layer) -> auto& { return layer.q_norm; };
inline constexpr auto k_norm = [](auto& layer) -> auto& { return layer.k_norm; };
inline constexpr auto attention_output_norm = [](auto& layer) -> auto& { return layer.attention_output_norm; };
inline constexpr auto mlp_norm = [](auto& layer) -> auto& { return layer.mlp_norm; };
inline constexpr auto gate_proj = [](auto& layer) -> auto& { return layer.gate_proj; };
inline constexpr auto up_proj = [](auto& layer) -> auto& { return layer.up_proj; };
inline constexpr auto gate_up_proj = [](auto& layer) -> auto& { return layer.gate_up_proj; };
inline constexpr auto down_proj = [](auto& layer) -> auto& { return layer.down_proj; };
inline constexpr auto mlp_output_norm = [](auto& layer) -> auto& { return layer.mlp_output_norm; };

inline constexpr auto in_proj_qkv = [](auto& layer) -> auto& { return layer.in_proj_qkv; };
inline constexpr auto in_proj_z = [](auto& layer) -> auto& { return layer.in_proj_z; };
inline constexpr auto in_proj_b = [](auto& layer) -> auto& { return layer.in_proj_b; };
inline constexpr auto in_proj_a = [](auto& layer) -> auto& { return layer.in_proj_a; };
inline constexpr auto in_proj_qkvz = [](auto& layer) -> auto& { return layer.in_proj_qkvz; };
inline constexpr auto in_proj_ba = [](auto& layer) -> auto& { return layer.in_proj_ba; };
inline constexpr auto conv = [](auto& layer) -> auto& { return layer.conv; };
inline constexpr auto a_log = [](auto& layer) -> auto& { return layer.a_log; };
inline constexpr auto dt_bias = [](auto& layer) -> auto& { return layer.dt_bias; };
inline constexpr auto delta_norm = [](auto& layer) -> auto& { return layer.delta_norm; };

inline constexpr auto router = [](auto& layer) -> auto& { return layer.router; };
inline constexpr auto shared = [](auto& layer) -> auto& { return layer.shared; };
inline constexpr auto shared_gate = [](auto& layer) -> auto& { return layer.shared_gate; };
inline constexpr auto all_gate_up = [](auto& layer) -> auto& { return layer.all_gate_up; };
inline constexpr auto all_down = [](auto& layer) -> auto& { return layer.all_down; };

}  // namespace parts

// The parts of an MLP of experts: routed(…) for the router and the experts that it chooses among, linear(…) for the rest.
// The list of a layer's experts gets its length where it may. `adapters`: LayerSpec::mlp_adapters.
template <class Map, class Routed>
void visit_experts(const DecoderConfig& c, const ExpertSpec& e, Map&& linear, Routed&& routed, bool adapters = true) {
  const std::string block(e.block);
  routed(block + "." + std::string(e.router), parts::router, e.count, c.hidden_size, e.bias);
  const auto gated = [&](const std::string& path, auto of, std::int64_t width, auto&& visit, std::string_view gate,
                         std::string_view up, std::string_view down, bool bias) {
    const auto gate_of = [of](auto& layer) -> auto& { return of(layer).gate_proj; };
    const auto up_of = [of](auto& layer) -> auto& { return of(layer).up_proj; };
    const auto down_of = [of](auto& layer) -> auto& { return of(layer).down_proj; };
    visit(path + std::string(gate), gate_of, width, c.hidden_size, bias);
    visit(path + std::string(up), up_of, width, c.hidden_size, bias);
    visit(path + std::string(down), down_of, c.hidden_size, width, bias);
  };
  const auto count = static_cast<std::size_t>(e.count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto of = [ i, count ](auto& layer) -> auto& {
      if constexpr (!std::is_const_v<std::remove_reference_t<decltype(layer)>>)
        if (layer.experts.size() != count) layer.experts.resize(count);
      return layer.experts[i];
    };
    gated(block + ".experts." + std::to_string(i) + ".", of, e.width, routed, e.gate_proj, e.up_proj, e.down_proj,
          e.bias);
  }
  if (e.shared_width == 0) return;
  const auto shared = [&](auto&&... part) { adapters ? linear(part...) : routed(part...); };
  gated(block + ".shared_expert.", parts::shared, e.shared_width, shared, "gate_proj", "up_proj", "down_proj", false);
  linear(block + ".shared_expert_gate", parts::shared_gate, 1, c.hidden_size, false);
}

// The parts of a gated delta rule; the shape of a plain one.
template <class Map, class Plain>
void visit_delta(const DecoderConfig& c, const DeltaSpec& d, Map&& linear, Plain&& plain) {
  const std::int64_t hidden = c.hidden_size, heads = d.value_heads;
  if (d.grouped) {
    linear("linear_attn.in_proj_qkvz", parts::in_proj_qkvz, d.channels() + d.values(), hidden, false);
    linear("linear_attn.in_proj_ba", parts::in_proj_ba, 2 * heads, hidden, false);
  } else {
    linear("linear_attn.in_proj_qkv", parts::in_proj_qkv, d.channels(), hidden, false);
    linear("linear_attn.in_proj_z", parts::in_proj_z, d.values(), hidden, false);
    linear("linear_attn.in_proj_b", parts::in_proj_b, heads, hidden, false);
    linear("linear_attn.in_proj_a", parts::in_proj_a, heads, hidden, false);
  }
  using Shape = std::vector<std::int64_t>;
  plain("linear_attn.conv1d.weight", parts::conv, Shape{d.channels(), 1, d.kernel}, WeightRole::matrix);
  plain("linear_attn.A_log", parts::a_log, Shape{heads}, WeightRole::matrix);
  plain("linear_attn.dt_bias", parts::dt_bias, Shape{heads}, WeightRole::norm);
  plain("linear_attn.norm.weight", parts::delta_norm, Shape{d.value_dim}, WeightRole::norm);
  linear("linear_attn.out_proj", parts::o_proj, hidden, d.values(), false);
}

// Of every part of such a layer, in the order of the list, one of
//   norm(path, member, width)                     its weight is [width]; the 1 of a unit offset is added to it
//   linear(path, member, out, in, bias)           its weight is [out, in], its bias, if it has one, [out]
//   routed(path, member, out, in, bias)           the same of a map that carries no adapter: a router, an expert that it chooses
//   plain(name, member, shape, role)              a tensor that is neither, with its whole name
// where `path` is the part's below model.layers.N, and `member` gives it of any LayerParts.
template <class Norm, class Map, class Routed, class Plain>
void visit_parts(const DecoderConfig& c, const LayerSpec& s, Norm&& norm, Map&& linear, Routed&& routed,
                 Plain&& plain) {
  const std::int64_t hidden = c.hidden_size, inner = c.intermediate_size, queries = c.heads * c.head_dim,
                     keys = c.kv_heads * c.head_dim;
  const auto norm_if_named = [&](std::string_view path, auto member) {
    if (!path.empty()) norm(path, member, hidden);
  };
  norm_if_named(s.norms.attention, parts::attention_norm);
  if (s.delta.present()) {
    visit_delta(c, s.delta, linear, plain);
  } else {
    if (s.fused_qkv) {
      linear("self_attn.qkv_proj", parts::qkv_proj, queries + 2 * keys, hidden, s.qkv_bias);
    } else {
      linear("self_attn.q_proj", parts::q_proj, s.output_gate ? 2 * queries : queries, hidden, s.qkv_bias);
      linear("self_attn.k_proj", parts::k_proj, keys, hidden, s.qkv_bias);
      linear("self_attn.v_proj", parts::v_proj, keys, hidden, s.qkv_bias);
    }
    linear("self_attn.o_proj", parts::o_proj, hidden, queries, s.output_bias);
    if (s.head_norm != HeadNorm::none) {
      const bool all = s.head_norm == HeadNorm::all;
      norm("self_attn.q_norm", parts::q_norm, all ? queries : c.head_dim);
      norm("self_attn.k_norm", parts::k_norm, all ? keys : c.head_dim);
    }
  }
  norm_if_named(s.norms.attention_output, parts::attention_output_norm);
  norm_if_named(s.norms.mlp, parts::mlp_norm);
  if (s.experts.count > 0) {
    visit_experts(c, s.experts, linear, routed, s.mlp_adapters);
  } else {
    const auto map = [&](std::string_view path, auto member, std::int64_t out, std::int64_t in) {
      s.mlp_adapters ? linear(path, member, out, in, s.mlp_bias) : routed(path, member, out, in, s.mlp_bias);
    };
    if (s.fused_gate_up) {
      map("mlp.gate_up_proj", parts::gate_up_proj, 2 * inner, hidden);
    } else {
      map("mlp.gate_proj", parts::gate_proj, inner, hidden);
      map("mlp.up_proj", parts::up_proj, inner, hidden);
    }
    map("mlp.down_proj", parts::down_proj, hidden, inner);
  }
  norm_if_named(s.norms.mlp_output, parts::mlp_output_norm);
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
    const auto map = [&](std::string_view path, auto member, std::int64_t out, std::int64_t in, bool bias) {
      auto& part = member(layer);
      visit(prefix + std::string(path) + ".weight", part.weight, Shape{out, in}, WeightRole::matrix);
      if (bias) visit(prefix + std::string(path) + ".bias", part.bias, Shape{out}, WeightRole::bias);
    };
    visit_parts(
        c, c.spec(static_cast<std::int64_t>(i)),
        [&](std::string_view path, auto member, std::int64_t width) {
          visit(prefix + std::string(path) + ".weight", member(layer), Shape{width}, WeightRole::norm);
        },
        map, map,
        [&](std::string_view name, auto member, const Shape& shape, WeightRole role) {
          visit(prefix + std::string(name), member(layer), shape, role);
        });
    if (c.spec(static_cast<std::int64_t>(i)).sinks)
      visit(prefix + "self_attn.sinks", layer.sinks, Shape{c.heads}, WeightRole::matrix);
  }
  visit(std::string("model.norm.weight"), weights.final_norm, Shape{c.hidden_size}, WeightRole::norm);
  if (!c.tied_embeddings) {
    visit(std::string("lm_head.weight"), weights.lm_head, Shape{c.vocab_size, c.hidden_size}, WeightRole::matrix);
  }
}

// Calls visit(path, map, layer, routed) for every linear map of the layers; `routed`: the map carries no adapter.
template <class Weights, class Visit>
void visit_maps(const DecoderConfig& c, Weights& weights, Visit&& visit) {
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = weights.layers[i];
    const std::string prefix = layer_prefix(i);
    const auto map = [&](bool routed) {
      return [&, routed](std::string_view path, auto member, std::int64_t, std::int64_t, bool) {
        visit(prefix + std::string(path), member(layer), static_cast<std::int64_t>(i), routed);
      };
    };
    visit_parts(
        c, c.spec(static_cast<std::int64_t>(i)), [](auto&&...) {}, map(false), map(true), [](auto&&...) {});
  }
}

// Calls visit(path, lora, weight) for every linear map that can carry an adapter, in the order of the file, lm_head
// last (tied or not); and, for the maps of all experts of a layer, `joined`(path, lora, layer), whose path is that of the parameter in
// transformers: P mlp.experts.gate_up_proj, P mlp.experts.down_proj.
template <class Weights, class Visit, class Joined>
void visit_loras(const DecoderConfig& c, Weights& weights, Visit&& visit, Joined&& joined) {
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = weights.layers[i];
    const std::string prefix = layer_prefix(i);
    visit_parts(
        c, c.spec(static_cast<std::int64_t>(i)), [](std::string_view, auto, std::int64_t) {},
        [&](std::string_view path, auto member, std::int64_t, std::int64_t, bool) {
          auto& part = member(layer);
          visit(prefix + std::string(path), part.lora, part.weight);
        },
        [](auto&&...) {}, [](auto&&...) {});
    if (c.spec(static_cast<std::int64_t>(i)).experts.count == 0) continue;
    joined(prefix + "mlp.experts.gate_up_proj", layer.all_gate_up.lora, i);
    joined(prefix + "mlp.experts.down_proj", layer.all_down.lora, i);
  }
  visit(std::string("lm_head"), weights.lm_head_lora, weights.lm_head);
}

// Where PEFT keeps the adapter of such a parameter: of two on one module the first is wrapped by the second.
[[nodiscard]] inline std::string joined_adapter_path(const std::string& parameter, bool both) {
  const std::string module = parameter.substr(0, parameter.rfind('.'));
  return both && parameter.ends_with(".gate_up_proj") ? module + ".base_layer" : module;
}

// The same with visit(path, lora, weight) for those of experts, too: the path is that of the adapter's file, and the weight that of
// one expert.
template <class Weights, class Visit>
void visit_loras(const DecoderConfig& c, Weights& weights, Visit&& visit) {
  visit_loras(c, weights, visit, [&](const std::string& parameter, auto& lora, std::size_t i) {
    auto& layer = weights.layers[i];
    const bool both = layer.all_gate_up.lora.defined() && layer.all_down.lora.defined();
    visit(joined_adapter_path(parameter, both), lora, layer.experts.front().down_proj.weight);
  });
}

}  // namespace rlalgo::model
