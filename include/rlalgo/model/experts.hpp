// An MLP of experts: each token passes the few that a router chooses for it, and perhaps one that all tokens pass.
//
//   l = R x,   p = softmax(l),   C = the k experts of the largest p (of equal ones the first)
//   c_e = p_e, or p_e / Σ_C p where the weights are normalised
//   y = Σ_{e ∈ C} c_e · down_e(act(gate_e x) · up_e x)  [ + σ(s·x) · down(act(gate x) · up x) ]
//   of clamped gates (gpt-oss) g·σ(αg)·(u + 1) stands for act(gate_e x)·up_e x, with g = min(gate_e x, L), u = up_e x within ±L;
//   that is silu(αg)·(u + 1)/α. Maps may have biases.
//
// Source: Shazeer et al., arXiv 1701.06538; Mixtral, Jiang et al., arXiv 2401.04088, section 2.1; Qwen2, arXiv 2407.10671,
// section 2.2.2 (the shared expert); gpt-oss, arXiv 2508.10925, section 2 (biases, clamped gates); as transformers computes them. No token is dropped, whatever the load.
// Symbols: R router [E, H], E experts of width I, k = ExpertSpec::chosen, s shared_gate [1, H].
// Shapes: x and y [S, H]. Of each token k pairs (token, expert), P = S·k; they are sorted by expert, then by token, so that an
// expert is one product over neighbouring rows. Which rows those are the host must know: one copy of [S, k] numbers a layer.
// Dtypes: l in that of x; softmax, weights and the sum over experts in float32 (float64 for float64). transformers rounds
// the weights of Qwen's models to bfloat16; they are not rounded here.
// Backward, with ∂y_e = ∂y of the pair's token, h = act(gate_e x)·up_e x and b the bias of down_e:  ∂h = c_e·down_eᵀ∂y_e,
//   ∂c_e = h·down_eᵀ∂y_e + b·∂y_e,  ∂b = Σ c_e ∂y_e,
//   ∂l = p ⊙ (∂p − p·∂p),  where ∂p is that of the chosen and 0 elsewhere, and ∂p_e = (∂c_e − Σ_C c ∂c)/Σ_C p if normalised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <rlalgo/model/expert_adapter.hpp>
#include <rlalgo/model/expert_exchange.hpp>
#include <rlalgo/model/layer_spec.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

// What a router decided.
struct Routing {
  Tensor probabilities;  // [S, E] float32
  Tensor experts;        // [S, k] int64, the likeliest first
  Tensor weights;        // [S, k] float32
  // Of a replay: which of the experts were noted, and which of those the router would not have chosen, [S, k] bool.
  Tensor noted, replaced;
};

// `logits` [S, E]. `replay` [S, k] int64, or undefined: the experts to pass (router_replay.hpp), −1 = what the router chooses.
[[nodiscard]] inline Routing route(const ExpertSpec& spec, const Tensor& logits, const Tensor& replay = {}) {
  Routing out;
  out.probabilities = logits.softmax(-1, logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const auto sorted = out.probabilities.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true);
  out.experts = std::get<1>(sorted).narrow(1, 0, spec.chosen).contiguous();
  Tensor chosen = std::get<0>(sorted).narrow(1, 0, spec.chosen);
  if (replay.defined()) {
    out.noted = replay.ge(0);
    out.replaced = replay.unsqueeze(2).ne(out.experts.unsqueeze(1)).all(2).logical_and_(out.noted);
    out.experts = replay.where(out.noted, out.experts).contiguous();
    chosen = out.probabilities.gather(1, out.experts);
  }
  out.weights = spec.normalised ? chosen.div(chosen.sum(1, true)) : chosen.contiguous();
  return out;
}

// The pairs of a batch, sorted by expert, then by token.
struct ExpertGroups {
  std::vector<std::int64_t> begin;  // [E + 1]: pairs begin[e] … begin[e + 1] are those of expert e
  Tensor pair;                      // [P] of a place: token·k + its number among the token's experts
  Tensor token;                     // [P] of a place
  Tensor place;                     // [P] of a pair
};

// `experts` [S, k] on any device.
[[nodiscard]] inline ExpertGroups group_by_expert(const Tensor& experts, std::int64_t count) {
  const Tensor host = experts.to(at::Device(at::kCPU)).contiguous();
  const std::int64_t* const of = host.const_data_ptr<std::int64_t>();
  const auto pairs = static_cast<std::size_t>(host.numel());
  const std::int64_t chosen = host.size(1);
  ExpertGroups out;
  out.begin.assign(static_cast<std::size_t>(count) + 1, 0);
  for (std::size_t i = 0; i < pairs; ++i) ++out.begin[static_cast<std::size_t>(of[i]) + 1];
  for (std::size_t e = 1; e < out.begin.size(); ++e) out.begin[e] += out.begin[e - 1];
  std::vector<std::int64_t> next(out.begin.begin(), out.begin.end() - 1), pair(pairs), token(pairs), place(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::int64_t at = next[static_cast<std::size_t>(of[i])]++;
    pair[static_cast<std::size_t>(at)] = static_cast<std::int64_t>(i);
    token[static_cast<std::size_t>(at)] = static_cast<std::int64_t>(i) / chosen;
    place[i] = at;
  }
  const at::TensorOptions options = experts.options();
  out.pair = tensor::from_values(pair, options);
  out.token = tensor::from_values(token, options);
  out.place = tensor::from_values(place, options);
  return out;
}

// What the backward pass needs of the experts' products.
struct ExpertRowsTape {
  Tensor gate{}, up{};  // [P, I] each
};

// What the backward pass of experts needs.
struct ExpertTape {
  Routing routing{};
  ExpertGroups groups{};
  ExpertRowsTape rows{};                                 // where the experts are here
  Tensor shared_gate{}, shared_up{}, shared_strength{};  // [S, I'], [S, I'], σ [S, 1]
};

namespace detail {

// f(expert, first place, places) for every expert that has any; `begin` is that of experts `first`, first + 1, ….
template <class F>
void each_group(const std::vector<std::int64_t>& begin, std::size_t first, F&& f) {
  for (std::size_t e = 0; e + 1 < begin.size(); ++e)
    if (const std::int64_t n = begin[e + 1] - begin[e]; n > 0) f(first + e, begin[e], n);
}

// act(gate) · up; in the place of gate where nothing is kept.
[[nodiscard]] inline Tensor gated_product(const Operations& ops, Activation act, const Tensor& gate, const Tensor& up,
                                          bool kept) {
  const Tensor active = kept ? tensor::empty_like(gate) : gate;
  ops.gated(act, gate, up, active);
  return active;
}

// Of gate and up, or their gradients.
struct Gates {
  Tensor gate, up;
};

// What act(gate)·up reads where gates are clamped: α·min(gate, L) and (up within ±L + 1)/α. Else the same tensors.
[[nodiscard]] inline Gates clamped(const ExpertSpec& e, const Tensor& gate, const Tensor& up) {
  if (e.gate_limit == 0.0) return {gate, up};
  return {gate.clamp_max(e.gate_limit).mul_(e.gate_slope),
          up.clamp(-e.gate_limit, e.gate_limit).add_(1.0).div_(e.gate_slope)};
}

// ∂gate and ∂up of the gradients of what clamped() gave, which are given up.
[[nodiscard]] inline Gates clamped_backward(const ExpertSpec& e, const Tensor& gate, const Tensor& up, Gates grad) {
  if (e.gate_limit == 0.0) return grad;
  grad.gate.mul_(e.gate_slope).masked_fill_(gate.gt(e.gate_limit), 0.0);
  grad.up.div_(e.gate_slope).masked_fill_(up.abs().gt(e.gate_limit), 0.0);
  return grad;
}

// Of down_proj, for the rows of one expert: adds ∂W and ∂b, puts b·∂y into `along` [n], and returns Wᵀ∂y. `weighted` [n, I] is c·h,
// `weight` [n, 1] is c.
[[nodiscard]] inline Tensor down_backward(Linear map, const Tensor& grad, const Tensor& weighted, const Tensor& weight,
                                          const Tensor& along, const DropoutDraw& drop) {
  const Tensor bias = std::exchange(map.bias, Tensor());
  if (bias.defined()) {
    along.copy_(grad.mv(bias));
    if (Tensor gradient = gradient_buffer(bias); gradient.defined()) gradient.add_(grad.mul(weight).sum(0));
  }
  return linear_backward(map, grad, weighted, {}, drop);
}

// Σ over the k pairs of a token, whose values [P, H] stand in the order of experts, each times its weight, where those are given.
[[nodiscard]] inline Tensor add_pairs(const Tensor& values, const ExpertGroups& groups, std::int64_t chosen,
                                      const Tensor& weights = {}) {
  const Tensor of_tokens = values.index_select(0, groups.place).view({-1, chosen, values.size(1)});  // [S, k, H]
  if (!weights.defined()) return of_tokens.sum(1);
  return of_tokens.mul(weights.unsqueeze(2)).sum(1).to(values.scalar_type());
}

// A weight that is trained has a gradient even where no token has passed it: an optimizer treats all experts alike.
inline void touch_gradients(const LayerWeights& w, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i)
    for (const Linear* map : {&w.experts[i].gate_proj, &w.experts[i].up_proj, &w.experts[i].down_proj})
      for (const Tensor* weight : {&map->weight, &map->bias}) (void)gradient_buffer(*weight);
  for (const Lora* lora : {&w.all_gate_up.lora, &w.all_down.lora})
    for (const Tensor* weight : {&lora->a, &lora->b}) (void)gradient_buffer(*weight);
}

}  // namespace detail

// What experts give for rows [P, H] that are sorted by expert: those of expert first + i are begin[i] … begin[i + 1]. `tape` may be
// null: nothing is kept then.
[[nodiscard]] inline Tensor expert_rows_forward(const Operations& ops, const LayerSpec& spec, const LayerWeights& w,
                                                const Tensor& rows, const std::vector<std::int64_t>& begin,
                                                const DropoutDraw& drop, ExpertRowsTape* tape, std::size_t first = 0) {
  const ExpertSpec& e = spec.experts;
  const Tensor gate = tensor::empty({rows.size(0), e.width}, rows.options()), up = tensor::empty_like(gate);
  const AdaptedExperts experts(e, w);
  detail::each_group(begin, first, [&](std::size_t i, std::int64_t at, std::int64_t n) {
    const Tensor mine = rows.narrow(0, at, n);
    gate.narrow(0, at, n).copy_(linear(mine, experts.gate(i), drop));
    up.narrow(0, at, n).copy_(linear(mine, experts.up(i), drop));
  });
  const detail::Gates gates = detail::clamped(e, gate, up);
  const Tensor active = detail::gated_product(ops, spec.activation, gates.gate, gates.up, tape != nullptr);
  const Tensor given = tensor::empty_like(rows);  // [P, H]
  detail::each_group(begin, first, [&](std::size_t i, std::int64_t at, std::int64_t n) {
    given.narrow(0, at, n).copy_(linear(active.narrow(0, at, n), experts.down(i), drop));
  });
  if (tape != nullptr) *tape = {gate, up};
  return given;
}

// Adds the gradients of those experts' weights. `rows()` is asked for the rows once the gradient of their results is used up; `grad` [P, H]
// is ∂y of each row's token, `weight` [P, 1] its c.
template <class Rows>
[[nodiscard]] ExpertExchange::Gradient expert_rows_backward(const Operations& ops, const LayerSpec& spec,
                                                            const LayerWeights& w, const Rows& rows,
                                                            const std::vector<std::int64_t>& begin,
                                                            const ExpertRowsTape& tape, Tensor grad,
                                                            const Tensor& weight, const DropoutDraw& drop,
                                                            std::size_t first = 0) {
  const ExpertSpec& e = spec.experts;
  const at::ScalarType type = grad.scalar_type();
  const AdaptedExperts experts(e, w);
  detail::Gates gates = detail::clamped(e, tape.gate, tape.up);
  Tensor active = detail::gated_product(ops, spec.activation, gates.gate, gates.up, true);
  Tensor weighted = active.mul(weight).to(type), given = tensor::empty_like(active);  // [P, I]
  const Tensor along = tensor::zeros({grad.size(0)}, weight.options());               // [P] b·∂y
  detail::each_group(begin, first, [&](std::size_t i, std::int64_t at, std::int64_t n) {
    const auto mine = [&](const Tensor& x) { return x.narrow(0, at, n); };
    mine(given).copy_(
        detail::down_backward(experts.down(i), mine(grad), mine(weighted), mine(weight), mine(along), drop));
  });
  Tensor grad_weights = given.to(weight.scalar_type()).mul(active).sum(1).add_(along);
  ops.gated_backward(spec.activation, given.mul(weight).to(type), gates.gate, gates.up);
  gates = detail::clamped_backward(e, tape.gate, tape.up, std::move(gates));
  active = weighted = given = grad = Tensor();
  const Tensor seen = rows();
  Tensor grad_rows = tensor::empty_like(seen);
  detail::each_group(begin, first, [&](std::size_t i, std::int64_t at, std::int64_t n) {
    const Tensor mine = seen.narrow(0, at, n);
    Tensor grad_mine = linear_backward(experts.up(i), gates.up.narrow(0, at, n), mine, {}, drop);
    grad_mine = linear_backward(experts.gate(i), gates.gate.narrow(0, at, n), mine, grad_mine, drop);
    grad_rows.narrow(0, at, n).copy_(grad_mine);
  });
  detail::touch_gradients(w, first, begin.size() - 1);
  return {std::move(grad_rows), std::move(grad_weights)};
}

// Where a layer's experts are: here, unless there is an exchange.
struct ExpertPlace {
  ExpertExchange* exchange = nullptr;
  std::int64_t layer = 0;
};

// `routing` is that of x. `tape` may be null: nothing is kept then.
[[nodiscard]] inline Tensor experts_forward(const Operations& ops, const LayerSpec& spec, const LayerWeights& w,
                                            const Tensor& x, const Routing& routing, const DropoutDraw& drop,
                                            ExpertTape* tape, const ExpertPlace& place = {}) {
  const ExpertSpec& e = spec.experts;
  const ExpertGroups groups = group_by_expert(routing.experts, e.count);
  const Tensor rows = ops.rows(x, groups.token);  // [P, H]
  ExpertRowsTape kept;
  const Tensor given = place.exchange != nullptr ? place.exchange->forward(place.layer, rows, groups.begin)
                                                 : expert_rows_forward(ops, spec, w, rows, groups.begin, drop,
                                                                       tape != nullptr ? &kept : nullptr);
  Tensor y = detail::add_pairs(given, groups, e.chosen, routing.weights);
  if (tape != nullptr) *tape = {.routing = routing, .groups = groups, .rows = std::move(kept)};
  if (e.shared_width == 0) return y;
  const Tensor shared_gate = linear(x, w.shared.gate_proj, drop).contiguous();
  const Tensor shared_up = linear(x, w.shared.up_proj, drop).contiguous();
  const Tensor strength = linear(x, w.shared_gate, drop).sigmoid();  // [S, 1]
  const Tensor shared = detail::gated_product(ops, spec.activation, shared_gate, shared_up, tape != nullptr);
  y.add_(linear(shared, w.shared.down_proj, drop).mul_(strength));
  if (tape != nullptr) {
    tape->shared_gate = shared_gate;
    tape->shared_up = shared_up;
    tape->shared_strength = strength;
  }
  return y;
}

namespace detail {

// ∂l [S, E] of ∂c [S, k], with `grad_probabilities` [S, E] added to ∂p where that is defined.
[[nodiscard]] inline Tensor route_backward(const ExpertSpec& spec, const Routing& routing, Tensor grad_weights,
                                           const Tensor& grad_probabilities) {
  const Tensor& p = routing.probabilities;
  if (spec.normalised) {
    const Tensor total = p.gather(1, routing.experts).sum(1, true);
    grad_weights = grad_weights.sub(grad_weights.mul(routing.weights).sum(1, true)).div_(total);
  }
  Tensor grad = tensor::zeros_like(p).scatter_(1, routing.experts, grad_weights);
  if (grad_probabilities.defined()) grad.add_(grad_probabilities);
  return grad.sub_(grad.mul(p).sum(1, true)).mul_(p);
}

[[nodiscard]] inline Tensor shared_backward(const Operations& ops, Activation act, const LayerWeights& w,
                                            const Tensor& x, ExpertTape& tape, const Tensor& grad, Tensor grad_x,
                                            const DropoutDraw& drop) {
  const Tensor active = gated_product(ops, act, tape.shared_gate, tape.shared_up, true);
  const Tensor& strength = tape.shared_strength;
  const Tensor given = linear_backward(w.shared.down_proj, grad, active.mul(strength), {}, drop);  // [S, I']
  const Tensor grad_strength = given.mul(active).sum(1, true);
  ops.gated_backward(act, given.mul(strength), tape.shared_gate, tape.shared_up);
  grad_x = linear_backward(w.shared.up_proj, tape.shared_up, x, std::move(grad_x), drop);
  grad_x = linear_backward(w.shared.gate_proj, tape.shared_gate, x, std::move(grad_x), drop);
  return linear_backward(w.shared_gate, grad_strength.mul_(strength).mul_(strength.neg().add_(1.0)), x,
                         std::move(grad_x), drop);
}

}  // namespace detail

// Adds the gradients of the weights and returns ∂x [S, H], for ∂y `grad` [S, H] and the x that the forward pass had.
[[nodiscard]] inline Tensor experts_backward(const Operations& ops, const LayerSpec& spec, const LayerWeights& w,
                                             const Tensor& x, ExpertTape tape, const Tensor& grad,
                                             const DropoutDraw& drop, const Tensor& grad_probabilities = {},
                                             const ExpertPlace& place = {}) {
  const ExpertSpec& e = spec.experts;
  const ExpertGroups& groups = tape.groups;
  const at::ScalarType type = x.scalar_type();
  const Tensor weight = tape.routing.weights.view({-1}).index_select(0, groups.pair).unsqueeze(1);  // [P, 1]
  const auto rows = [&](const Tensor& of) { return ops.rows(of, groups.token); };                   // [P, H]
  const ExpertExchange::Gradient gradient =
      place.exchange != nullptr
          ? place.exchange->backward(place.layer, rows(grad), weight)
          : expert_rows_backward(
                ops, spec, w, [&] { return rows(x); }, groups.begin, tape.rows, rows(grad), weight, drop);
  const Tensor grad_weights = gradient.weights.index_select(0, groups.place).view({-1, e.chosen});
  Tensor grad_x = detail::add_pairs(gradient.rows, groups, e.chosen);
  const Tensor grad_logits = detail::route_backward(e, tape.routing, grad_weights, grad_probabilities).to(type);
  grad_x = linear_backward(w.router, grad_logits, x, std::move(grad_x));
  if (e.shared_width == 0) return grad_x;
  return detail::shared_backward(ops, spec.activation, w, x, tape, grad, std::move(grad_x), drop);
}

}  // namespace rlalgo::model
