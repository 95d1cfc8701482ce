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
#include <utility>

#include <rlalgo/model/adapted_maps.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/detail/layer_maps.hpp>
#include <rlalgo/model/experts.hpp>
#include <rlalgo/model/gated_delta.hpp>
#include <rlalgo/model/layer_context.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/raw_heads.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

namespace detail {

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

// residual + scale·norm(map(x)); `ranks` gets what backward_of() is to be given.
[[nodiscard]] inline Tensor add_branch(const LayerContext& context, const AdaptedMaps* adapted, const Tensor& residual,
                                       const Tensor& x, const Linear& map, const Tensor& norm, const DropoutDraw& drop,
                                       Tensor& ranks, Tensor* branch, Tensor* scale) {
  if (!norm.defined() && context.spec.residual_scale == 1.0)
    return adapted != nullptr ? adapted->forward(x, AdaptedMaps::Outputs::columns, drop, ranks, residual).front()
                              : linear_residual(residual, x, map, drop);
  return add_value(context, residual, forward_of(adapted, x, map, drop, ranks), norm, branch, scale);
}

// What o_proj is given, [T, …], of normalised x.
[[nodiscard]] inline Tensor attend_forward(const LayerContext& context, const LayerWeights& w, const Tensor& x,
                                           LayerTape* tape) {
  const DecoderConfig& c = context.config;
  const Operations& ops = context.operations;
  const std::int64_t tokens = x.size(0);
  Tensor ranks;
  const Projections projected = project(context, w, x, ranks);
  if (tape != nullptr) tape->ranks.attention = ranks;
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
    return project_backward(context, w, {g.q, g.k, g.v, grad_gate}, x, tape.ranks.attention);
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
  return project_backward(context, w, grads, x, tape.ranks.attention);
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
[[nodiscard]] inline Tensor layer_forward(const LayerContext& given, const LayerWeights& w, const Tensor& x,
                                          const Tensor& rows, LayerTape* tape) {
  const AdaptedLayer adapted(w, x);
  const LayerContext context = given.with(adapted);
  AdapterRanks ranks;
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
  const Tensor middle = detail::add_branch(context, context.adapted_maps(&AdaptedLayer::output), residual, attended,
                                           w.o_proj, w.attention_output_norm, row_drop, ranks.output,
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
  if (tape != nullptr) tape->ranks.output = ranks.output;
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
  const auto [gate, up] = detail::gate_up(context, w, middle_normed.value, row_drop, ranks.gate_up);
  const Tensor active = tape != nullptr || !gate.is_contiguous() ? tensor::empty_like(gate) : gate;
  ops.gated(context.spec.activation, gate, up, active);
  if (tape != nullptr) {
    tape->gate = gate;
    tape->up = up;
  }
  const Tensor out = detail::add_branch(context, context.adapted_maps(&AdaptedLayer::down), middle, active, w.down_proj,
                                        w.mlp_output_norm, row_drop, ranks.down, branch, branch_scale);
  if (tape != nullptr) {
    tape->ranks.gate_up = ranks.gate_up;
    tape->ranks.down = ranks.down;
  }
  return out;
}

// Consumes the tape and `grad` [S, H]; returns ∂x [T, H].
[[nodiscard]] inline Tensor layer_backward(const LayerContext& given, const LayerWeights& w, LayerTape tape,
                                           Tensor grad) {
  const AdaptedLayer adapted(w, tape.input);
  const LayerContext context = given.with(adapted);
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
    ops.gated_backward(act,
                       detail::backward_of(context.adapted_maps(&AdaptedLayer::down), w.down_proj, grad_branch, active,
                                           row_drop, tape.ranks.down)
                           .contiguous(),
                       tape.gate, tape.up);
    const detail::GateUp grads{std::exchange(tape.gate, Tensor()), std::exchange(tape.up, Tensor())};
    active = tape.mlp_branch = Tensor();
    leave_mlp(detail::gate_up_backward(context, w, grads, read_by_mlp, row_drop, tape.ranks.gate_up));
  }
  Tensor grad_attended = detail::backward_of(
      context.adapted_maps(&AdaptedLayer::output), w.o_proj,
      context.branch_backward(grad, tape.attention_branch, w.attention_output_norm, tape.attention_branch_scale),
      tape.attended, row_drop, tape.ranks.output);  // [S, n·D], or of a gated delta rule
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
