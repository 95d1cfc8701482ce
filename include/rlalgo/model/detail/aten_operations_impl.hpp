// Definitions of aten_operations.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/aten_operations.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/detail/dropout_operators.hpp>
#include <rlalgo/model/detail/dropout_words.hpp>
#include <rlalgo/model/detail/gated.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

namespace detail {

// x − mean x of each row, where the norm asks for it.
inline Tensor centred(const Tensor& x, const NormSpec& norm) { return norm.centred ? x.sub(x.mean(-1, true)) : x; }

}  // namespace detail

RLALGO_INLINE void AtenOperations::add_rows(Tensor& gradient, const Tensor& index, const Tensor& grad) const {
  gradient.index_add_(0, index, grad);
}

RLALGO_INLINE RmsNormOutput AtenOperations::rms_norm(const Tensor& x, const Tensor& weight,
                                                     const NormSpec& norm) const {
  const Tensor wide = detail::centred(flat(x, weight).to(detail::accumulator_type(x.scalar_type())), norm);  // [R, H]
  const Tensor scale = wide.square().mean(-1).add_(norm.epsilon).rsqrt_();                                   // [R]
  const Tensor unit = wide.mul(scale.unsqueeze(1));
  if (norm.once()) {
    const Tensor factor = weight.to(unit.scalar_type());
    return {unit.mul(norm.unit_offset ? factor.add(1.0) : factor).to(x.scalar_type()).view(x.sizes()), scale};
  }
  return {unit.to(x.scalar_type()).mul(weight).view(x.sizes()), scale};
}

RLALGO_INLINE Tensor AtenOperations::rms_norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                                       const NormSpec& norm, const Tensor& scale, Tensor grad_x,
                                                       Tensor grad_weight) const {
  const at::ScalarType type = detail::accumulator_type(x.scalar_type());
  const Tensor g = flat(grad_y, weight).to(type), wide = detail::centred(flat(x, weight).to(type), norm);  // [R, H]
  const Tensor factor = norm.unit_offset ? weight.to(type).add(1.0) : weight.to(type);
  const Tensor weighted = g.mul(factor), r = scale.unsqueeze(1);
  const Tensor pull = weighted.mul(wide).sum(-1, true).mul_(r.pow(3)).div_(weight.size(0));  // [R, 1]
  Tensor change = detail::centred(weighted.mul(r).sub_(wide.mul(pull)), norm).view(x.sizes());
  if (grad_weight.defined()) grad_weight.copy_(grad_weight.to(type).add_(g.mul(wide).mul_(r).sum(0)));
  if (!grad_x.defined()) return change.to(x.scalar_type());
  return grad_x.copy_(change.add_(grad_x));
}

RLALGO_INLINE void AtenOperations::rotate(Tensor& x, const RopeTable& table, Rotation rotation) const {
  const std::int64_t tokens = table.cosine.size(0), half = table.cosine.size(1);
  if (tokens == 0) return;
  const at::ScalarType type = detail::accumulator_type(x.scalar_type());
  const Tensor cosine = table.cosine.to(type).unsqueeze(1);  // [T, 1, D/2]
  const Tensor sine =
      rotation == Rotation::forward ? table.sine.to(type).unsqueeze(1) : table.sine.to(type).neg().unsqueeze(1);
  const Tensor heads = x.view({tokens, -1, x.size(-1)}).narrow(2, 0, 2 * half);
  const Tensor pairs = heads.unflatten(2, {half, 2});
  Tensor first = table.interleaved ? pairs.select(3, 0) : heads.narrow(2, 0, half);
  Tensor second = table.interleaved ? pairs.select(3, 1) : heads.narrow(2, half, half);
  const Tensor low = first.to(type), high = second.to(type);  // views where no conversion is due
  const Tensor rotated = low.mul(cosine).sub_(high.mul(sine));
  second.copy_(high.mul(cosine).add_(low.mul(sine)));
  first.copy_(rotated);
}

RLALGO_INLINE void AtenOperations::gated(Activation act, const Tensor& gate, const Tensor& up,
                                         const Tensor& out) const {
  detail::gated(act, gate, up, out);
}

RLALGO_INLINE void AtenOperations::gated_backward(Activation act, const Tensor& grad, const Tensor& gate,
                                                  const Tensor& up) const {
  detail::gated_backward(act, grad, gate, up);
}

RLALGO_INLINE AttentionLayout AtenOperations::lay_out(AttentionPlan plan, at::Device device) const {
  AttentionLayout out{std::move(plan)};
  const auto options = at::TensorOptions().dtype(at::kLong).device(device);
  for (const auto& own : out.plan.own) {
    if (own.begins.size() == 1) continue;
    std::vector<std::int64_t> padded, places, tokens;
    for (std::size_t b = 0; b < own.begins.size(); ++b) {
      for (std::int64_t l = 0; l < own.length; ++l) {
        const bool real = l < own.sizes[b];
        padded.push_back(own.begins[b] + (real ? l : own.sizes[b] - 1));
        if (!real) continue;
        places.push_back(static_cast<std::int64_t>(b) * own.length + l);
        tokens.push_back(padded.back());
      }
    }
    for (const auto& values : {padded, places, tokens}) out.tensors.push_back(tensor::from_values(values, options));
  }
  return out;
}

RLALGO_INLINE void AtenOperations::attend(const Piece& piece, const Tensor& q, const Tensor& k, const Tensor& v,
                                          AttentionOutput& out) const {
  const std::int64_t heads = q.size(1), width = q.size(2);
  const AttentionOutput part = piece_forward(piece, gather(q, piece.queries, piece.batch),
                                             gather(k, piece.keys, piece.batch), gather(v, piece.keys, piece.batch));
  const Tensor theirs = part.value.view({-1, heads, width}), theirs_sum = part.log_sum.view({-1, heads});
  if (!piece.merge) {
    scatter(out.value, piece.queries, theirs);
    scatter(out.log_sum, piece.queries, theirs_sum);
    return;
  }
  Tensor ours = out.value.narrow(0, piece.queries.begin, piece.queries.count),
         ours_sum = out.log_sum.narrow(0, piece.queries.begin, piece.queries.count);
  const Tensor top = ours_sum.maximum(theirs_sum);
  const Tensor a = theirs_sum.sub(top).exp_(), c = ours_sum.sub(top).exp_(), total = a.add(c);
  ours.mul_(c.div_(total).unsqueeze(2)).add_(theirs.mul(a.div_(total).unsqueeze(2)));
  ours_sum.copy_(top.add(total.log()));
}

RLALGO_INLINE AttentionOutput AtenOperations::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                        const AttentionLayout& layout) const {
  const at::ScalarType type = detail::accumulator_type(q.scalar_type());
  const Tensor value = q.new_empty(q.sizes(), q.options().dtype(type));
  AttentionOutput out{value, q.new_empty({q.size(0), q.size(1)}, value.options())};
  visit(layout, [&](const Piece& piece) { attend(piece, q, k, v, out); });
  return {out.value.to(q.scalar_type()), out.log_sum};
}

RLALGO_INLINE void AtenOperations::attend_further(const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const AttentionLayout& layout, AttentionOutput& out) const {
  AttentionOutput wide{out.value.to(detail::accumulator_type(q.scalar_type())), out.log_sum};
  visit(layout, [&](const Piece& piece) { attend(piece, q, k, v, wide); });
  out.value = wide.value.to(q.scalar_type());
}

RLALGO_INLINE void AtenOperations::add_gradient(const Piece& piece, const Tensor& grad, const Tensor& q,
                                                const Tensor& k, const Tensor& v, const Tensor& log_sum,
                                                const Tensor& along, AttentionGradient& sum) const {
  const AttentionGradient g = piece_backward(piece, gather_zero(grad, piece), gather(q, piece.queries, piece.batch),
                                             gather(k, piece.keys, piece.batch), gather(v, piece.keys, piece.batch),
                                             gather(log_sum, piece.queries, piece.batch), gather_zero(along, piece));
  add(sum.q, piece.queries, g.q);
  add(sum.k, piece.keys, g.k);
  add(sum.v, piece.keys, g.v);
}

RLALGO_INLINE AttentionGradient AtenOperations::attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                                   const Tensor& v, const AttentionOutput& out,
                                                                   const AttentionLayout& layout) const {
  const at::ScalarType type = detail::accumulator_type(q.scalar_type());
  const auto zeros = [&](const Tensor& x) { return x.new_zeros(x.sizes(), x.options().dtype(type)); };
  AttentionGradient result{zeros(q), zeros(k), zeros(v)};
  const Tensor wide = grad.to(type);
  const Tensor along = wide.mul(out.value).sum(-1);  // [T, n] ∂o·o, subtracted in the softmax's derivative
  visit(layout, [&](const Piece& piece) { add_gradient(piece, wide, q, k, v, out.log_sum, along, result); });
  return {result.q.to(q.scalar_type()), result.k.to(k.scalar_type()), result.v.to(v.scalar_type())};
}

RLALGO_INLINE void AtenOperations::attend_further_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                           const Tensor& v, const AttentionOutput& out,
                                                           const AttentionLayout& layout,
                                                           AttentionGradient& sum) const {
  const at::ScalarType type = detail::accumulator_type(q.scalar_type());
  const Tensor wide = grad.to(type);
  const Tensor along = wide.mul(out.value).sum(-1);  // [T, n]
  visit(layout, [&](const Piece& piece) { add_gradient(piece, wide, q, k, v, out.log_sum, along, sum); });
}

RLALGO_INLINE Tensor AtenOperations::dropout(const Tensor& x, const DropoutMask& mask) const {
  const std::int64_t n = x.numel(), width = x.size(-1);
  const auto here = [&] {
    std::vector<std::uint8_t> dropped(static_cast<std::size_t>(n));
    detail::visit_dropout(mask, static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(width),
                          [&](std::uint64_t i, bool drop) { dropped[i] = drop ? 1 : 0; });
    return tensor::from_values(dropped, at::TensorOptions().dtype(at::kBool));
  };
  const Tensor zero = x.is_cpu() ? here() : detail::dropped_there(mask, n, width, x);
  const Tensor kept = x.to(detail::accumulator_type(x.scalar_type())).mul(1.0 / (1.0 - mask.probability));
  return kept.masked_fill_(zero.view(x.sizes()), 0.0).to(x.scalar_type());
}

RLALGO_INLINE Tensor AtenOperations::select(const Tensor& x, const Tensor& index) {
  const Tensor flat = x.flatten(1);  // [T, W]; ATen's index_select does not know the meta device
  std::vector<std::int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape[0] = index.size(0);
  return flat.gather(0, index.unsqueeze(1).expand({index.size(0), flat.size(1)})).view(shape);
}

RLALGO_INLINE Tensor AtenOperations::gather(const Tensor& x, const Tokens& tokens, std::int64_t batch) {
  const Tensor flat = tokens.padded.defined() ? select(x, tokens.padded) : x.narrow(0, tokens.begin, tokens.count);
  return flat.unflatten(0, {batch, -1});
}

RLALGO_INLINE Tensor AtenOperations::gather_zero(const Tensor& x, const Piece& piece) {
  const Tokens& tokens = piece.queries;
  if (!tokens.padded.defined()) return gather(x, tokens, piece.batch);
  std::vector<std::int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape[0] = tokens.padded.size(0);
  return x.new_zeros(shape).index_copy_(0, tokens.places, select(x, tokens.real)).unflatten(0, {piece.batch, -1});
}

RLALGO_INLINE void AtenOperations::scatter(Tensor& x, const Tokens& tokens, const Tensor& y) {
  if (tokens.padded.defined())
    x.index_copy_(0, tokens.real, select(y, tokens.places));
  else
    x.narrow(0, tokens.begin, tokens.count).copy_(y);
}

RLALGO_INLINE void AtenOperations::add(Tensor& x, const Tokens& tokens, const Tensor& y) {
  if (tokens.padded.defined())
    x.index_add_(0, tokens.real, select(y.flatten(0, 1), tokens.places));
  else
    x.narrow(0, tokens.begin, tokens.count).add_(y.flatten(0, 1));
}

RLALGO_INLINE Tensor AtenOperations::grouped(const Tensor& x, std::int64_t kv) {
  const std::int64_t batch = x.size(0), length = x.size(1), group = x.size(2) / kv, width = x.size(3);
  return x.view({batch, length, kv, group, width})
      .permute({0, 2, 3, 1, 4})
      .reshape({batch * kv, group * length, width});
}

RLALGO_INLINE Tensor AtenOperations::ungrouped(const Tensor& x, std::int64_t batch, std::int64_t heads,
                                               std::int64_t length) {
  const std::int64_t kv = x.size(0) / batch, group = heads / kv, width = x.size(2);
  return x.view({batch, kv, group, length, width}).permute({0, 3, 1, 2, 4}).reshape({batch, length, heads, width});
}

RLALGO_INLINE Tensor AtenOperations::scores_of(const Piece& piece, const Tensor& q, const Tensor& k, std::int64_t first,
                                               std::int64_t queries, double scale, Tensor* slope) {
  Tensor scores = q.bmm(k.transpose(1, 2)).mul_(scale);
  if (piece.cap > 0.0) {
    scores.div_(piece.cap).tanh_();
    if (slope != nullptr) *slope = scores.mul(scores).neg_().add_(1.0);
    scores.mul_(piece.cap);
  }
  if (!piece.causal && !piece.masked) return scores;
  const Tensor all = tensor::ones({queries, k.size(1)}, q.options().dtype(at::kBool));
  const Tensor hidden = piece.causal ? all.triu(first + 1) : all.tril(first + piece.offset);  // [M, K]
  scores.view({-1, queries, k.size(1)}).masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  return scores;
}

RLALGO_INLINE AttentionOutput AtenOperations::piece_forward(const Piece& piece, const Tensor& q, const Tensor& k,
                                                            const Tensor& v) const {
  const at::ScalarType type = detail::accumulator_type(q.scalar_type());
  const std::int64_t batch = q.size(0), heads = q.size(2), kv = k.size(2);
  const double scale = piece.scale != 0.0 ? piece.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const Tensor all_keys = grouped(k.to(type), kv), all_values = grouped(v.to(type), kv);  // [B·kv, K, D]
  AttentionOutput out{q.new_empty(q.sizes(), q.options().dtype(type)),
                      q.new_empty({batch, q.size(1), heads}, q.options().dtype(type))};
  blocks(piece, batch * heads, q.size(1), k.size(1), [&](std::int64_t first, std::int64_t count, std::int64_t keys) {
    const Tensor queries = grouped(q.narrow(1, first, count).to(type).contiguous(), kv);  // [B·kv, g·M, D]
    Tensor scores = scores_of(piece, queries, all_keys.narrow(1, 0, keys), first, count, scale);
    const Tensor top = scores.amax(-1, true);
    const Tensor powers = scores.sub_(top).exp_(), total = powers.sum(-1, true);
    const Tensor value = powers.bmm(all_values.narrow(1, 0, keys)).div_(total);
    out.value.narrow(1, first, count).copy_(ungrouped(value, batch, heads, count));
    out.log_sum.narrow(1, first, count).copy_(ungrouped(top.add(total.log()), batch, heads, count).squeeze(-1));
  });
  return out;
}

RLALGO_INLINE AttentionGradient AtenOperations::piece_backward(const Piece& piece, const Tensor& grad, const Tensor& q,
                                                               const Tensor& k, const Tensor& v, const Tensor& log_sum,
                                                               const Tensor& along) const {
  const at::ScalarType type = detail::accumulator_type(q.scalar_type());
  const std::int64_t batch = q.size(0), heads = q.size(2), kv = k.size(2);
  const double scale = piece.scale != 0.0 ? piece.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  const Tensor all_keys = grouped(k.to(type), kv), all_values = grouped(v.to(type), kv);  // [B·kv, K, D]
  Tensor grad_q = q.new_empty(q.sizes(), q.options().dtype(type));
  const Tensor grad_k = all_keys.new_zeros(all_keys.sizes()), grad_v = all_keys.new_zeros(all_keys.sizes());
  blocks(piece, batch * heads, q.size(1), k.size(1), [&](std::int64_t first, std::int64_t count, std::int64_t keys) {
    const auto block = [&](const Tensor& x) { return grouped(x.narrow(1, first, count).to(type).contiguous(), kv); };
    const Tensor seen_keys = all_keys.narrow(1, 0, keys), seen_values = all_values.narrow(1, 0, keys);
    const Tensor queries = block(q), g = block(grad);  // [B·kv, g·M, D]
    Tensor slope;
    const Tensor powers = scores_of(piece, queries, seen_keys, first, count, scale, &slope)
                              .sub_(block(log_sum.unsqueeze(-1)))
                              .exp_();  // [B·kv, g·M, K]
    grad_v.narrow(1, 0, keys).baddbmm_(powers.transpose(1, 2), g);
    const Tensor grad_scores =
        g.bmm(seen_values.transpose(1, 2)).sub_(block(along.unsqueeze(-1))).mul_(powers).mul_(scale);
    if (slope.defined()) grad_scores.mul_(slope);
    grad_q.narrow(1, first, count).copy_(ungrouped(grad_scores.bmm(seen_keys), batch, heads, count));
    grad_k.narrow(1, 0, keys).baddbmm_(grad_scores.transpose(1, 2), queries);
  });
  return {grad_q, ungrouped(grad_k, batch, kv, k.size(1)), ungrouped(grad_v, batch, kv, k.size(1))};
}

}  // namespace rlalgo::model
