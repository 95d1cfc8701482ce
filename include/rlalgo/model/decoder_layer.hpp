// One transformer layer over a token tree, forward and hand-written backward, as its LayerSpec describes it.
//
//   q, k, v = projections of norm(x)            (q, k normalised per head where the layer has head norms)
//   m = x + norm(o_proj(attention(rope(q), rope(k), v)))         (branches times a residual scale where there is one)
//   y = m + norm(down_proj(act(gate_proj(u)) · up_proj(u))),   u = norm(m);   norms that the layer lacks leave out; in a
//                                                              parallel layer u = norm(x)
//
// Source: Touvron et al., arXiv 2302.13971; Qwen2, arXiv 2407.10671; Qwen3, arXiv 2505.09388; Gemma 3, arXiv 2503.19786, as
// transformers computes them.
// Shapes: x [T, H]; y [S, H], where S = T, or the number of `rows` when only those are wanted of the last layer. The
// backward pass adds weight gradients in place (linear.hpp) and frees what it has used.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/experts.hpp>
#include <rlalgo/model/gated_delta.hpp>
#include <rlalgo/model/joined_maps.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/raw_heads.hpp>
#include <rlalgo/model/ring_attention.hpp>
#include <rlalgo/model/rope.hpp>
#include <rlalgo/model/router_load.hpp>
#include <rlalgo/model/router_replay.hpp>
#include <rlalgo/model/sinks.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

// What a layer of one forward pass gets; `layout` is the one of its window. Where the tokens of the batch lie on several
// ranks, T are this rank's, and `ring` attends instead of `layout`.
struct LayerContext {
  const DecoderConfig& config;
  const LayerSpec& spec;
  const Operations& operations;
  const AttentionLayout& layout;
  const RopeTable* rope;  // not read where the layer rotates nothing
  DropoutDraw dropout = {};
  const RingAttention* ring = nullptr;
  DropoutDraw row_dropout = {};        // where only `rows` are wanted
  RouterLoad* load = nullptr;          // counts what routers do, and gives its gradient; then all rows are wanted
  Tensor noted = {};                   // [T, k] experts to pass again, or undefined
  RouterReplay* replay = nullptr;      // counts what that changes
  const DeltaLayout* delta = nullptr;  // of the tokens, where the layer has a gated delta rule
  const DeltaState* given = nullptr;   // what its runs begin with, and what is asked of it: an engine's pass
  DeltaState* after = nullptr;
  ExpertPlace expert_place = {};  // where the layer has experts

  // `sinks` may be undefined: there are none.
  [[nodiscard]] AttentionOutput attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sinks) const {
    AttentionOutput out = ring != nullptr ? ring->forward(q, k, v) : operations.attention(q, k, v, layout);
    return sinks.defined() ? with_sinks(out, sinks) : out;
  }
  void sink_backward(const Tensor& grad, const AttentionOutput& out, const Tensor& sinks) const {
    if (const Tensor gradient = gradient_buffer(sinks); gradient.defined())
      add_sink_gradient(gradient, grad, out, sinks);
  }
  [[nodiscard]] AttentionGradient attend_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const AttentionOutput& out, const Tensor& sinks) const {
    sink_backward(grad, out, sinks);
    return ring != nullptr ? ring->backward(grad, q, k, v, out)
                           : operations.attention_backward(grad, q, k, v, out, layout);
  }
  // Attention that takes q [T, n·D], k and v [T, kv·D] as the layer's maps give them, and what it takes; null: there is none.
  [[nodiscard]] std::pair<RawHeads, const RawHeadsAttention*> of_raw_heads(const LayerWeights& w, const Tensor& q,
                                                                           const Tensor& k, const Tensor& v) const {
    RawHeads raw{q, k, v, config.head_dim, w.q_norm, w.k_norm, config.norm, spec.rotary() ? rope : nullptr};
    const RawHeadsAttention* const takes = ring == nullptr ? operations.of_raw_heads(raw, layout) : nullptr;
    return {std::move(raw), takes};
  }
  // x itself where the layer has no such norm.
  [[nodiscard]] RmsNormOutput norm(const Tensor& x, const Tensor& weight) const {
    return weight.defined() ? operations.rms_norm(x, weight, config.norm) : RmsNormOutput{x, {}};
  }
  // ∂x, added to `residual` where that is defined.
  [[nodiscard]] Tensor norm_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& scale,
                                     Tensor residual = {}) const {
    if (weight.defined())
      return operations.rms_norm_backward(grad, x, weight, config.norm, scale, std::move(residual),
                                          gradient_buffer(weight));
    return residual.defined() ? residual.add_(grad) : grad;
  }
  // What a branch gets of ∂y where y = x + scale·norm(branch).
  [[nodiscard]] Tensor branch_backward(const Tensor& grad, const Tensor& branch, const Tensor& weight,
                                       const Tensor& scale) const {
    return norm_backward(spec.residual_scale == 1.0 ? grad : grad.mul(spec.residual_scale), branch, weight, scale);
  }
};

// What the backward pass of a layer needs. What is cheap to compute again is not kept: the two normalised inputs, which the
// gradients of the weights are products with, and act(gate) · up.
struct LayerTape {
  Tensor input, q, k,
      v;  // [T, H], [T, n, D], [T, kv, D] ×2 (q and k as the attention saw them); of raw heads [T, n·D], [T, kv·D] ×2
  Tensor raw_q, raw_k;  // before the norm per head
  bool raw = false;     // whether attention took raw heads
  Tensor input_scale, q_scale, k_scale, middle_scale;
  AttentionOutput attention;
  Tensor output_gate;       // [T, n·D], where the layer has one
  DeltaInputs delta;        // instead of q, k, v and attention, where the layer has a gated delta rule
  Tensor rows;              // [S] int64, or undefined: all
  Tensor attended, middle;  // [S, n·D], [S, H]
  Tensor gate, up;          // [S, I], [S, I]
  ExpertTape experts;       // instead of those two, where the layer has experts
  // Of layers that normalise what a branch gives: that, and the scale of its rows.
  Tensor attention_branch, attention_branch_scale, mlp_branch, mlp_branch_scale;  // [S, H], [S], [S, H], [S]
};

namespace detail {

struct Projections {
  Tensor q, k, v;    // [T, n·D], [T, kv·D] ×2
  Tensor gate = {};  // [T, n·D], where the layer has an output gate
};

// The maps as one product, where their weights lie together. Not on the CPU, where each is multiplied by itself.
[[nodiscard]] inline std::optional<JoinedMaps> joined(const Tensor& x, std::initializer_list<const Linear*> maps) {
  return x.is_cpu() ? std::nullopt : JoinedMaps::of(maps);
}

// Columns [first, first + count) of y, in memory of their own.
[[nodiscard]] inline Tensor columns(const Tensor& y, std::int64_t first, std::int64_t count) {
  return y.narrow(1, first, count).contiguous();
}

[[nodiscard]] inline Projections project(const LayerContext& context, const LayerWeights& w, const Tensor& x) {
  const DropoutDraw& drop = context.dropout;
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
    Projections out{linear(x, w.q_proj, drop), linear(x, w.k_proj, drop), linear(x, w.v_proj, drop)};
    if (context.spec.output_gate) {
      const std::int64_t d = context.config.head_dim;
      const Tensor heads = out.q.view({x.size(0), context.config.heads, 2 * d});
      out.gate = heads.narrow(2, d, d).reshape({x.size(0), -1});
      out.q = heads.narrow(2, 0, d).reshape({x.size(0), -1});
    }
    return out;
  }
  const Projections apart = raw_of(linear(x, w.qkv_proj, drop));
  if (takes_columns()) return apart;
  return {apart.q.contiguous(), apart.k.contiguous(), apart.v.contiguous()};
}

// ∂x; `x()` is asked for what the maps saw, where they want it.
template <class Input>
[[nodiscard]] Tensor project_backward(const LayerContext& context, const LayerWeights& w, const Projections& grad,
                                      const Input& x) {
  const DropoutDraw& drop = context.dropout;
  if (context.spec.fused_qkv)
    return linear_backward(w.qkv_proj, as_columns({grad.q, grad.k, grad.v}), wants_input(w.qkv_proj) ? x() : Tensor(),
                           {}, drop);
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
  Tensor out = linear_backward(w.q_proj, grad_q, input, {}, drop);
  out = linear_backward(w.k_proj, grad.k, input, out, drop);
  return linear_backward(w.v_proj, grad.v, input, out, drop);
}

struct GateUp {
  Tensor gate, up;  // [S, I]; contiguous, or the halves of one [S, 2I]
};

[[nodiscard]] inline GateUp gate_up(const LayerContext& context, const LayerWeights& w, const Tensor& x,
                                    const DropoutDraw& drop) {
  if (const auto all = context.spec.fused_gate_up ? std::nullopt : joined(x, {&w.gate_proj, &w.up_proj})) {
    const Tensor y = all->forward(x);  // [S, 2I]
    const std::int64_t half = y.size(1) / 2;
    return {y.narrow(1, 0, half), y.narrow(1, half, half)};
  }
  if (!context.spec.fused_gate_up)
    return {linear(x, w.gate_proj, drop).contiguous(), linear(x, w.up_proj, drop).contiguous()};
  const Tensor y = linear(x, w.gate_up_proj, drop);
  const std::int64_t half = context.config.intermediate_size;
  return {columns(y, 0, half), columns(y, half, half)};
}

template <class Input>
[[nodiscard]] Tensor gate_up_backward(const LayerContext& context, const LayerWeights& w, const GateUp& grad,
                                      const Input& x, const DropoutDraw& drop) {
  if (context.spec.fused_gate_up)
    return linear_backward(w.gate_up_proj, tensor::concatenate({grad.gate, grad.up}, 1),
                           wants_input(w.gate_up_proj) ? x() : Tensor(), {}, drop);
  if (const Tensor both = side_by_side({grad.gate, grad.up}); both.defined())
    if (const auto all = joined(both, {&w.gate_proj, &w.up_proj}))
      return all->backward(both, wants_input(w.gate_proj) ? x() : Tensor());
  const Tensor input = wants_input(w.gate_proj) || wants_input(w.up_proj) ? x() : Tensor();
  return linear_backward(w.gate_proj, grad.gate, input, linear_backward(w.up_proj, grad.up, input, {}, drop), drop);
}

// residual + scale·norm(value), and value itself is given up; `branch` and `scale` get what the backward pass of the norm
// needs, where there is one.
[[nodiscard]] inline Tensor add_value(const LayerContext& context, const Tensor& residual, const Tensor& value,
                                      const Tensor& norm, Tensor* branch, Tensor* scale) {
  const double factor = context.spec.residual_scale;
  RmsNormOutput normed = context.norm(value, norm);
  if (factor != 1.0) normed.value.mul_(factor);
  if (branch != nullptr && norm.defined()) {
    *branch = value;
    *scale = normed.scale;
  }
  return normed.value.add_(residual);
}

// residual + scale·norm(map(x)).
[[nodiscard]] inline Tensor add_branch(const LayerContext& context, const Tensor& residual, const Tensor& x,
                                       const Linear& map, const Tensor& norm, const DropoutDraw& drop, Tensor* branch,
                                       Tensor* scale) {
  if (!norm.defined() && context.spec.residual_scale == 1.0) return linear_residual(residual, x, map, drop);
  return add_value(context, residual, linear(x, map, drop), norm, branch, scale);
}

// What o_proj is given, [T, …], of normalised x.
[[nodiscard]] inline Tensor attend_forward(const LayerContext& context, const LayerWeights& w, const Tensor& x,
                                           LayerTape* tape) {
  const DecoderConfig& c = context.config;
  const Operations& ops = context.operations;
  const std::int64_t tokens = x.size(0);
  const Projections projected = project(context, w, x);
  const auto gated = [&](const AttentionOutput& attention) {
    const Tensor value = attention.value.view({tokens, c.heads * c.head_dim});
    return projected.gate.defined() ? value.mul(projected.gate.sigmoid()) : value;
  };
  if (const auto [raw, takes] = context.of_raw_heads(w, projected.q, projected.k, projected.v); takes != nullptr) {
    AttentionOutput attention = takes->raw_attention(raw, context.layout);
    if (w.sinks.defined()) attention = with_sinks(attention, w.sinks);
    if (tape != nullptr) {
      tape->q = raw.q;
      tape->k = raw.k;
      tape->v = raw.v;
      tape->raw = true;
      tape->attention = attention;
      tape->output_gate = projected.gate;
    }
    return gated(attention);
  }
  Tensor q = projected.q.view({tokens, c.heads, c.head_dim});
  Tensor k = projected.k.view({tokens, c.kv_heads, c.head_dim});
  const Tensor v = projected.v.view({tokens, c.kv_heads, c.head_dim});
  if (context.spec.head_norm != HeadNorm::none) {
    RmsNormOutput q_normed = context.norm(q, w.q_norm), k_normed = context.norm(k, w.k_norm);
    if (tape != nullptr) {
      tape->raw_q = q;
      tape->raw_k = k;
      tape->q_scale = q_normed.scale;
      tape->k_scale = k_normed.scale;
    }
    q = q_normed.value;
    k = k_normed.value;
  }
  if (context.spec.rotary()) {
    ops.rotate(q, *context.rope, Rotation::forward);
    ops.rotate(k, *context.rope, Rotation::forward);
  }
  const AttentionOutput attention = context.attend(q, k, v, w.sinks);
  if (tape != nullptr) {
    tape->q = q;
    tape->k = k;
    tape->v = v;
    tape->attention = attention;
    tape->output_gate = projected.gate;
  }
  return gated(attention);
}

// ∂ of normalised x, which `x()` gives, of ∂ [T, …] of what o_proj was given.
template <class Input>
[[nodiscard]] Tensor attend_backward(const LayerContext& context, const LayerWeights& w, LayerTape& tape, Tensor grad,
                                     const Input& x) {
  const DecoderConfig& c = context.config;
  const Operations& ops = context.operations;
  const std::int64_t tokens = tape.q.size(0), queries = c.heads * c.head_dim;
  Tensor grad_gate;
  if (tape.output_gate.defined()) {
    const Tensor share = tape.output_gate.sigmoid();
    grad_gate = grad.mul(tape.attention.value.view({tokens, queries})).mul_(share).mul_(share.neg().add_(1.0));
    grad = grad.mul(share);
  }
  if (tape.raw) {
    const auto [raw, takes] = context.of_raw_heads(w, tape.q, tape.k, tape.v);
    const AttentionOutput attention = std::exchange(tape.attention, AttentionOutput());
    const Tensor heads = grad.view({tokens, c.heads, c.head_dim});
    context.sink_backward(heads, attention, w.sinks);
    const AttentionGradient g = takes->raw_attention_backward(heads, raw, attention, context.layout,
                                                              gradient_buffer(w.q_norm), gradient_buffer(w.k_norm));
    return project_backward(context, w, {g.q, g.k, g.v, grad_gate}, x);
  }
  AttentionGradient g = context.attend_backward(grad.view({tokens, c.heads, c.head_dim}), tape.q, tape.k, tape.v,
                                                tape.attention, w.sinks);
  tape.attention = AttentionOutput();
  if (context.spec.rotary()) {
    ops.rotate(g.q, *context.rope, Rotation::backward);
    ops.rotate(g.k, *context.rope, Rotation::backward);
  }
  if (context.spec.head_norm != HeadNorm::none) {
    g.q = context.norm_backward(g.q, tape.raw_q, w.q_norm, tape.q_scale);
    g.k = context.norm_backward(g.k, tape.raw_k, w.k_norm, tape.k_scale);
  }
  const Projections grads{g.q.view({tokens, queries}), g.k.view({tokens, c.kv_heads * c.head_dim}),
                          g.v.view({tokens, c.kv_heads * c.head_dim}), grad_gate};
  return project_backward(context, w, grads, x);
}

// The same of a gated delta rule.
[[nodiscard]] inline Tensor mix_forward(const LayerContext& context, const LayerWeights& w, const Tensor& x,
                                        LayerTape* tape) {
  const DeltaSpec& spec = context.spec.delta;
  DeltaInputs inputs = delta_inputs(spec, w, x, context.dropout);
  Tensor out =
      delta_forward(spec, context.config.norm.epsilon, w, inputs, *context.delta, context.given, context.after);
  if (tape != nullptr) tape->delta = std::move(inputs);
  return out;
}

template <class Input>
[[nodiscard]] Tensor mix_backward(const LayerContext& context, const LayerWeights& w, LayerTape& tape,
                                  const Tensor& grad, const Input& x) {
  const DeltaSpec& spec = context.spec.delta;
  const DeltaInputs grads =
      delta_backward(spec, context.config.norm.epsilon, w, std::exchange(tape.delta, {}), *context.delta, grad);
  return delta_inputs_backward(spec, w, grads, x, context.dropout);
}

}  // namespace detail

// `tape` may be null: nothing is kept then. `rows` undefined: all rows.
[[nodiscard]] inline Tensor layer_forward(const LayerContext& context, const LayerWeights& w, const Tensor& x,
                                          const Tensor& rows, LayerTape* tape) {
  const Operations& ops = context.operations;
  const RmsNormOutput normed = context.norm(x, w.attention_norm);
  Tensor attended = context.spec.delta.present() ? detail::mix_forward(context, w, normed.value, tape)
                                                 : detail::attend_forward(context, w, normed.value, tape);
  Tensor residual = x;
  if (rows.defined()) {
    attended = ops.rows(attended, rows);
    residual = ops.rows(x, rows);
  }
  const DropoutDraw& row_drop = rows.defined() ? context.row_dropout : context.dropout;
  const Tensor middle = detail::add_branch(context, residual, attended, w.o_proj, w.attention_output_norm, row_drop,
                                           tape != nullptr ? &tape->attention_branch : nullptr,
                                           tape != nullptr ? &tape->attention_branch_scale : nullptr);
  const bool parallel = context.spec.parallel;
  const RmsNormOutput middle_normed =
      parallel ? RmsNormOutput{rows.defined() ? ops.rows(normed.value, rows) : normed.value, {}}
               : context.norm(middle, w.mlp_norm);
  if (tape != nullptr) {
    tape->input = x;
    tape->input_scale = normed.scale;
    tape->rows = rows;
    tape->attended = attended;
    if (!parallel) tape->middle = middle;
    tape->middle_scale = middle_normed.scale;
  }
  Tensor* const branch = tape != nullptr ? &tape->mlp_branch : nullptr;
  Tensor* const branch_scale = tape != nullptr ? &tape->mlp_branch_scale : nullptr;
  if (context.spec.experts.count > 0) {
    const Tensor noted =
        context.noted.defined() && rows.defined() ? context.noted.index_select(0, rows) : context.noted;
    const Routing routing = route(context.spec.experts, linear(middle_normed.value, w.router), noted);
    if (context.load != nullptr) context.load->add(routing);
    if (context.replay != nullptr) context.replay->add(routing);
    const Tensor value = experts_forward(ops, context.spec, w, middle_normed.value, routing, row_drop,
                                         tape != nullptr ? &tape->experts : nullptr, context.expert_place);
    return detail::add_value(context, middle, value, w.mlp_output_norm, branch, branch_scale);
  }
  const auto [gate, up] = detail::gate_up(context, w, middle_normed.value, row_drop);
  const Tensor active = tape != nullptr || !gate.is_contiguous() ? tensor::empty_like(gate) : gate;
  ops.gated(context.spec.activation, gate, up, active);
  if (tape != nullptr) {
    tape->gate = gate;
    tape->up = up;
  }
  return detail::add_branch(context, middle, active, w.down_proj, w.mlp_output_norm, row_drop, branch, branch_scale);
}

// Consumes the tape and `grad` [S, H]; returns ∂x [T, H].
[[nodiscard]] inline Tensor layer_backward(const LayerContext& context, const LayerWeights& w, LayerTape tape,
                                           Tensor grad) {
  const DecoderConfig& c = context.config;
  const Operations& ops = context.operations;
  const Activation act = context.spec.activation;
  const std::int64_t tokens = tape.input.size(0);
  const DropoutDraw& row_drop = tape.rows.defined() ? context.row_dropout : context.dropout;
  Tensor read;  // norm(x), once something asks for it
  const auto read_by_attention = [&] {
    if (!read.defined()) read = context.norm(tape.input, w.attention_norm).value;
    return read;
  };
  const auto read_by_mlp = [&] {
    if (!context.spec.parallel) return context.norm(tape.middle, w.mlp_norm).value;
    return tape.rows.defined() ? ops.rows(read_by_attention(), tape.rows) : read_by_attention();
  };
  Tensor grad_read;  // ∂norm(x) of a parallel layer's MLP
  const auto leave_mlp = [&](const Tensor& grad_normed) {
    if (!context.spec.parallel)
      grad = context.norm_backward(grad_normed, tape.middle, w.mlp_norm, tape.middle_scale, std::move(grad));
    else
      grad_read = tape.rows.defined()
                      ? grad_normed.new_zeros({tokens, c.hidden_size}).index_copy_(0, tape.rows, grad_normed)
                      : grad_normed;
    tape.middle = tape.mlp_branch = Tensor();
  };
  if (context.spec.experts.count > 0) {
    const Tensor grad_branch = context.branch_backward(grad, tape.mlp_branch, w.mlp_output_norm, tape.mlp_branch_scale);
    leave_mlp(experts_backward(ops, context.spec, w, read_by_mlp(), std::move(tape.experts), grad_branch, row_drop,
                               context.load != nullptr ? context.load->gradient() : Tensor(), context.expert_place));
  } else {
    Tensor active;
    if (wants_input(w.down_proj)) {
      active = tensor::empty_like(tape.gate);
      ops.gated(act, tape.gate, tape.up, active);
    }
    const Tensor grad_branch = context.branch_backward(grad, tape.mlp_branch, w.mlp_output_norm, tape.mlp_branch_scale);
    ops.gated_backward(act, linear_backward(w.down_proj, grad_branch, active, {}, row_drop).contiguous(), tape.gate,
                       tape.up);
    const detail::GateUp grads{std::exchange(tape.gate, Tensor()), std::exchange(tape.up, Tensor())};
    active = tape.mlp_branch = Tensor();
    leave_mlp(detail::gate_up_backward(context, w, grads, read_by_mlp, row_drop));
  }
  Tensor grad_attended = linear_backward(
      w.o_proj,
      context.branch_backward(grad, tape.attention_branch, w.attention_output_norm, tape.attention_branch_scale),
      tape.attended, {}, row_drop);  // [S, n·D], or of a gated delta rule
  tape.attended = tape.attention_branch = Tensor();
  if (tape.rows.defined()) {
    grad_attended = grad_attended.new_zeros({tokens, grad_attended.size(1)}).index_copy_(0, tape.rows, grad_attended);
    grad = grad.new_zeros({tokens, c.hidden_size}).index_copy_(0, tape.rows, grad);
  }
  Tensor grad_normed = context.spec.delta.present()
                           ? detail::mix_backward(context, w, tape, grad_attended, read_by_attention)
                           : detail::attend_backward(context, w, tape, std::move(grad_attended), read_by_attention);
  if (grad_read.defined()) grad_normed.add_(grad_read);
  return context.norm_backward(grad_normed, tape.input, w.attention_norm, tape.input_scale, std::move(grad));
}

}  // namespace rlalgo::model
