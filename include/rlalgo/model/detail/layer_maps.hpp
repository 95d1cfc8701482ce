// The linear maps of a layer, forward and backward: each by itself, those that read the same input joined (joined_maps.hpp), or joined with
// their adapters (adapted_maps.hpp).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include <rlalgo/model/joined_maps.hpp>
#include <rlalgo/model/layer_context.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

namespace detail {

struct Projections {
  Tensor q, k, v;    // [T, n·D], [T, kv·D] ×2
  Tensor gate = {};  // [T, n·D], where the layer has an output gate
};

// A map by itself, with `adapted` where that is not null; linear.hpp otherwise.
[[nodiscard]] inline Tensor forward_of(const AdaptedMaps* adapted, const Tensor& x, const Linear& map,
                                       const DropoutDraw& drop, Tensor& ranks) {
  return adapted != nullptr ? adapted->forward(x, AdaptedMaps::Outputs::columns, drop, ranks).front()
                            : linear(x, map, drop);
}
[[nodiscard]] inline Tensor backward_of(const AdaptedMaps* adapted, const Linear& map, const Tensor& grad,
                                        const Tensor& x, const DropoutDraw& drop, const Tensor& ranks) {
  return adapted != nullptr ? adapted->backward({grad}, x, ranks, drop) : linear_backward(map, grad, x, {}, drop);
}

// The maps as one product, where their weights lie together. Not on the CPU, where each is multiplied by itself.
[[nodiscard]] inline std::optional<JoinedMaps> joined(const Tensor& x, std::initializer_list<const Linear*> maps) {
  return x.is_cpu() ? std::nullopt : JoinedMaps::of(maps);
}

// Columns [first, first + count) of y, in memory of their own.
[[nodiscard]] inline Tensor columns(const Tensor& y, std::int64_t first, std::int64_t count) {
  return y.narrow(1, first, count).contiguous();
}

// `ranks` gets what project_backward() is to be given.
[[nodiscard]] inline Projections project(const LayerContext& context, const LayerWeights& w, const Tensor& x,
                                         Tensor& ranks) {
  const DropoutDraw& drop = context.dropout;
  const AdaptedMaps* const adapted = context.adapted_maps(&AdaptedLayer::attention);
  const std::int64_t queries = context.config.heads * context.config.head_dim,
                     keys = context.config.kv_heads * context.config.head_dim;
  const auto raw_of = [&](const Tensor& y) {  // [T, (n + 2kv)·D]
    return Projections{y.narrow(1, 0, queries), y.narrow(1, queries, keys), y.narrow(1, queries + keys, keys)};
  };
  const auto takes_columns = [&] {
    const Projections like = raw_of(x.new_empty({0, queries + 2 * keys}));
    return context.of_raw_heads(w, like.q, like.k, like.v).second != nullptr;
  };
  if (!context.spec.fused_qkv) {
    if (!context.spec.output_gate)
      if (const auto all = joined(x, {&w.q_proj, &w.k_proj, &w.v_proj}); all && takes_columns())
        return raw_of(all->forward(x));
    Projections out;
    if (adapted != nullptr) {
      const bool columns = !context.spec.output_gate && takes_columns();
      const auto y =
          adapted->forward(x, columns ? AdaptedMaps::Outputs::columns : AdaptedMaps::Outputs::apart, drop, ranks);
      out = {y[0], y[1], y[2]};
    } else {
      out = {linear(x, w.q_proj, drop), linear(x, w.k_proj, drop), linear(x, w.v_proj, drop)};
    }
    if (context.spec.output_gate) {
      const std::int64_t d = context.config.head_dim;
      const Tensor heads = out.q.view({x.size(0), context.config.heads, 2 * d});
      out.gate = heads.narrow(2, d, d).reshape({x.size(0), -1});
      out.q = heads.narrow(2, 0, d).reshape({x.size(0), -1});
    }
    return out;
  }
  const Projections apart = raw_of(forward_of(adapted, x, w.qkv_proj, drop, ranks));
  if (takes_columns()) return apart;
  return {apart.q.contiguous(), apart.k.contiguous(), apart.v.contiguous()};
}

// ∂x; `x()` is asked for what the maps saw, where they want it.
template <class Input>
[[nodiscard]] Tensor project_backward(const LayerContext& context, const LayerWeights& w, const Projections& grad,
                                      const Input& x, const Tensor& ranks) {
  const DropoutDraw& drop = context.dropout;
  const AdaptedMaps* const adapted = context.adapted_maps(&AdaptedLayer::attention);
  if (context.spec.fused_qkv)
    return backward_of(adapted, w.qkv_proj, as_columns({grad.q, grad.k, grad.v}),
                       wants_input(w.qkv_proj) ? x() : Tensor(), drop, ranks);
  if (!context.spec.output_gate)
    if (const auto all = joined(grad.q, {&w.q_proj, &w.k_proj, &w.v_proj}))
      return all->backward(as_columns({grad.q, grad.k, grad.v}), wants_input(w.q_proj) ? x() : Tensor());
  const Tensor input = wants_input(w.q_proj) || wants_input(w.k_proj) || wants_input(w.v_proj) ? x() : Tensor();
  Tensor grad_q = grad.q;
  if (context.spec.output_gate) {
    const auto heads = [&](const Tensor& of) {
      return of.view({of.size(0), context.config.heads, context.config.head_dim});
    };
    grad_q = tensor::concatenate({heads(grad.q), heads(grad.gate)}, 2).flatten(1);
  }
  if (adapted != nullptr) return adapted->backward({grad_q, grad.k, grad.v}, input, ranks, drop);
  Tensor out = linear_backward(w.q_proj, grad_q, input, {}, drop);
  out = linear_backward(w.k_proj, grad.k, input, out, drop);
  return linear_backward(w.v_proj, grad.v, input, out, drop);
}

struct GateUp {
  Tensor gate, up;  // [S, I]; contiguous, or the halves of one [S, 2I]
};

[[nodiscard]] inline GateUp gate_up(const LayerContext& context, const LayerWeights& w, const Tensor& x,
                                    const DropoutDraw& drop, Tensor& ranks) {
  const auto halves = [](const Tensor& y) {  // [S, 2I]
    const std::int64_t half = y.size(1) / 2;
    return GateUp{y.narrow(1, 0, half), y.narrow(1, half, half)};
  };
  if (const AdaptedMaps* const adapted = context.adapted_maps(&AdaptedLayer::gate_up)) {
    const auto y = adapted->forward(x, AdaptedMaps::Outputs::columns, drop, ranks);
    return context.spec.fused_gate_up ? halves(y[0]) : GateUp{y[0], y[1]};
  }
  if (const auto all = context.spec.fused_gate_up ? std::nullopt : joined(x, {&w.gate_proj, &w.up_proj}))
    return halves(all->forward(x));
  if (!context.spec.fused_gate_up)
    return {linear(x, w.gate_proj, drop).contiguous(), linear(x, w.up_proj, drop).contiguous()};
  const Tensor y = linear(x, w.gate_up_proj, drop);
  const std::int64_t half = context.config.intermediate_size;
  return {columns(y, 0, half), columns(y, half, half)};
}

template <class Input>
[[nodiscard]] Tensor gate_up_backward(const LayerContext& context, const LayerWeights& w, const GateUp& grad,
                                      const Input& x, const DropoutDraw& drop, const Tensor& ranks) {
  const AdaptedMaps* const adapted = context.adapted_maps(&AdaptedLayer::gate_up);
  if (context.spec.fused_gate_up)
    return backward_of(adapted, w.gate_up_proj, as_columns({grad.gate, grad.up}),
                       wants_input(w.gate_up_proj) ? x() : Tensor(), drop, ranks);
  if (const Tensor both = side_by_side({grad.gate, grad.up}); both.defined())
    if (const auto all = joined(both, {&w.gate_proj, &w.up_proj}))
      return all->backward(both, wants_input(w.gate_proj) ? x() : Tensor());
  const Tensor input = wants_input(w.gate_proj) || wants_input(w.up_proj) ? x() : Tensor();
  if (adapted != nullptr) return adapted->backward({grad.gate, grad.up}, input, ranks, drop);
  return linear_backward(w.gate_proj, grad.gate, input, linear_backward(w.up_proj, grad.up, input, {}, drop), drop);
}

}  // namespace detail

}  // namespace rlalgo::model
