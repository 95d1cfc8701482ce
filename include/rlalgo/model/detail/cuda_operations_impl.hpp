// Definitions of cuda_operations.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/model/cuda_operations.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/tensor/varlen_attention.hpp>

namespace rlalgo::model {

namespace detail {

// sums[segment[i]] += x[order[i]], in the order of i; `segment` is sorted.
inline void add_segments(const cuda::Kernels& own, const Tensor& x, const Tensor& segment, const Tensor& order,
                         const Tensor& sums) {
  tensor::launch(own, own.segment_sum,
                 {.x = x.const_data_ptr(),
                  .order = order.const_data_ptr<std::int64_t>(),
                  .segment = segment.const_data_ptr<std::int64_t>(),
                  .out = sums.mutable_data_ptr(),
                  .places = order.size(0),
                  .width = sums.size(0) == 0 ? 0 : sums.numel() / sums.size(0),
                  .element = tensor::element_of(sums)},
                 cuda::Kernel::segment_sum, sums);
}

}  // namespace detail

RLALGO_INLINE void CudaOperations::add_rows(Tensor& gradient, const Tensor& index, const Tensor& grad) const {
  const cuda::Kernels* const own = kernels().take(cuda::Kernel::segment_sum, gradient, grad);
  if (own == nullptr || index.scalar_type() != at::kLong) return AtenOperations::add_rows(gradient, index, grad);
  const auto [segment, order] = index.sort(/*stable=*/true, 0, /*descending=*/false);
  detail::add_segments(*own, grad, segment, order, gradient);
}

RLALGO_INLINE RmsNormOutput CudaOperations::rms_norm(const Tensor& x, const Tensor& weight,
                                                     const NormSpec& norm) const {
  const cuda::Kernels* const own = norm.centred ? nullptr : kernels().take(cuda::Kernel::rms_norm, x, weight);
  if (own == nullptr) return AtenOperations::rms_norm(x, weight, norm);
  const std::int64_t width = weight.size(0), rows = width == 0 ? 0 : x.numel() / width;
  RmsNormOutput out{tensor::empty_like(x), tensor::empty({rows}, x.options().dtype(at::kFloat))};
  tensor::launch(*own, own->rms_norm,
                 {.x = const_cast<void*>(x.const_data_ptr()),  // written to only with a residual
                  .weight = weight.const_data_ptr(),
                  .y = out.value.mutable_data_ptr(),
                  .scale = out.scale.mutable_data_ptr<float>(),
                  .rows = rows,
                  .width = width,
                  .epsilon = static_cast<float>(norm.epsilon),
                  .one_more = norm.unit_offset,
                  .once = norm.rounded_once,
                  .element = tensor::element_of(x)},
                 cuda::Kernel::rms_norm, x);
  return out;
}

RLALGO_INLINE Tensor CudaOperations::rms_norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                                       const NormSpec& norm, const Tensor& scale, Tensor grad_x,
                                                       Tensor grad_weight) const {
  const cuda::Kernels* const own =
      norm.centred ? nullptr : kernels().take(cuda::Kernel::rms_norm, x, grad_y, weight, grad_x, grad_weight);
  if (own == nullptr || scale.scalar_type() != at::kFloat || !scale.is_contiguous())
    return AtenOperations::rms_norm_backward(grad_y, x, weight, norm, scale, grad_x, grad_weight);
  const std::int64_t width = weight.size(0), rows = width == 0 ? 0 : x.numel() / width;
  const bool add = grad_x.defined();
  if (!add) grad_x = tensor::empty_like(x);
  Tensor partial;  // [chunks, H]
  if (grad_weight.defined())
    partial = tensor::empty({cuda::rms_norm_chunks(rows), width}, x.options().dtype(at::kFloat));
  tensor::launch(*own, own->rms_norm_gradient,
                 {.grad_y = grad_y.const_data_ptr(),
                  .x = x.const_data_ptr(),
                  .weight = weight.const_data_ptr(),
                  .scale = scale.const_data_ptr<float>(),
                  .grad_x = grad_x.mutable_data_ptr(),
                  .grad_weight = grad_weight.defined() ? grad_weight.mutable_data_ptr() : nullptr,
                  .partial = partial.defined() ? partial.mutable_data_ptr<float>() : nullptr,
                  .rows = rows,
                  .width = width,
                  .one_more = norm.unit_offset,
                  .add = add,
                  .element = tensor::element_of(x)},
                 cuda::Kernel::rms_norm, x);
  return grad_x;
}

RLALGO_INLINE void CudaOperations::rotate(Tensor& x, const RopeTable& table, Rotation rotation) const {
  const cuda::Kernels* const own = kernels().take(cuda::Kernel::rotate, x);
  if (own == nullptr || kernels().take(cuda::Kernel::rotate, table.cosine, table.sine) == nullptr ||
      table.cosine.scalar_type() != at::kFloat)
    return AtenOperations::rotate(x, table, rotation);
  const std::int64_t tokens = table.cosine.size(0), half = table.cosine.size(1), width = x.size(-1);
  tensor::launch(*own, own->rotate,
                 {.x = x.mutable_data_ptr(),
                  .cosine = table.cosine.const_data_ptr<float>(),
                  .sine = table.sine.const_data_ptr<float>(),
                  .tokens = tokens,
                  .heads = tokens * width == 0 ? 0 : x.numel() / (tokens * width),
                  .half = half,
                  .width = width,
                  .backward = rotation == Rotation::backward,
                  .interleaved = table.interleaved,
                  .element = tensor::element_of(x)},
                 cuda::Kernel::rotate, x);
}

namespace detail {

// Elements of a row and from one row to the next, 0 and 0 of contiguous tensors: how gate and up lie; null where no kernel reads them so.
inline std::optional<std::pair<std::int64_t, std::int64_t>> gated_rows(const Tensor& gate, const Tensor& up,
                                                                       const Tensor& like) {
  for (const Tensor* x : {&gate, &up})
    if (x->scalar_type() != like.scalar_type() || x->device() != like.device() || x->sizes() != like.sizes()) return {};
  if (gate.is_contiguous() && up.is_contiguous()) return std::pair<std::int64_t, std::int64_t>(0, 0);
  if (gate.dim() != 2 || gate.strides() != up.strides() || gate.stride(1) != 1) return {};
  return std::pair(gate.size(1), gate.stride(0));
}

}  // namespace detail

RLALGO_INLINE void CudaOperations::gated(Activation act, const Tensor& gate, const Tensor& up,
                                         const Tensor& out) const {
  const cuda::Kernels* const own = kernels().take(cuda::Kernel::gated, out);
  const auto rows = detail::gated_rows(gate, up, out);
  if (own == nullptr || !rows) return AtenOperations::gated(act, gate, up, out);
  tensor::launch(*own, own->gated,
                 {.gate = gate.const_data_ptr(),
                  .up = up.const_data_ptr(),
                  .out = out.mutable_data_ptr(),
                  .count = gate.numel(),
                  .width = rows->first,
                  .stride = rows->second,
                  .activation = kernel_activation(act),
                  .element = tensor::element_of(gate)},
                 cuda::Kernel::gated, gate);
}

RLALGO_INLINE void CudaOperations::gated_backward(Activation act, const Tensor& grad, const Tensor& gate,
                                                  const Tensor& up) const {
  const cuda::Kernels* const own = kernels().take(cuda::Kernel::gated, grad);
  const auto rows = detail::gated_rows(gate, up, grad);
  if (own == nullptr || !rows) return AtenOperations::gated_backward(act, grad, gate, up);
  tensor::launch(*own, own->gated_gradient,
                 {.grad = grad.const_data_ptr(),
                  .gate = gate.mutable_data_ptr(),
                  .up = up.mutable_data_ptr(),
                  .count = gate.numel(),
                  .width = rows->first,
                  .stride = rows->second,
                  .activation = kernel_activation(act),
                  .element = tensor::element_of(gate)},
                 cuda::Kernel::gated, gate);
}

RLALGO_INLINE AttentionLayout CudaOperations::lay_out(AttentionPlan plan, at::Device device) const {
  AttentionLayout out = AtenOperations::lay_out(std::move(plan), device);
  if (!kernels().has_attention() || out.plan.whole.empty()) return out;
  std::vector<std::int32_t> query_ends = {0}, key_ends = {0};
  std::vector<std::int64_t> tokens;
  for (const AttentionPlan::Whole& segment : out.plan.whole) {
    query_ends.push_back(static_cast<std::int32_t>(segment.end));
    key_ends.push_back(static_cast<std::int32_t>(key_ends.back() + segment.keys));
    for (const auto& run : segment.runs)
      for (std::int64_t t = run.begin; t < run.end; ++t) tokens.push_back(t);
  }
  const auto place = at::TensorOptions().device(device);
  out.tensors.push_back(tensor::from_values(query_ends, place.dtype(at::kInt)));
  out.tensors.push_back(tensor::from_values(key_ends, place.dtype(at::kInt)));
  if (static_cast<std::int64_t>(tokens.size()) == out.plan.tokens) return out;  // nobody sees an ancestor
  std::vector<std::int64_t> order(tokens.size()), sorted;
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return tokens[static_cast<std::size_t>(a)] < tokens[static_cast<std::size_t>(b)];
  });
  for (const std::int64_t place_of : order) sorted.push_back(tokens[static_cast<std::size_t>(place_of)]);
  std::vector<std::int64_t> first(static_cast<std::size_t>(out.plan.tokens) + 1, 0);
  for (const std::int64_t token : sorted) ++first[static_cast<std::size_t>(token) + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  for (const auto& values : {tokens, sorted, order, first})
    out.tensors.push_back(tensor::from_values(values, place.dtype(at::kLong)));
  return out;
}

RLALGO_INLINE CudaOperations::Unrolled CudaOperations::unrolled(const Tensor& q, const AttentionLayout& layout) const {
  std::size_t at = 0;
  for (const auto& own : layout.plan.own) at += own.begins.size() > 1 ? 3 : 0;
  const tensor::VarlenAttention* const attention = kernels().take_attention(q);
  if (attention == nullptr || layout.cap > 0.0 || layout.tensors.size() == at) return {};
  Unrolled out{.attention = attention};
  out.sequences.query_ends = layout.tensors[at];
  out.sequences.key_ends = layout.tensors[at + 1];
  for (const AttentionPlan::Whole& segment : layout.plan.whole) {
    out.sequences.longest_queries = std::max(out.sequences.longest_queries, segment.end - segment.begin);
    out.sequences.longest_keys = std::max(out.sequences.longest_keys, segment.keys);
  }
  out.sequences.scale = layout.scale != 0.0 ? layout.scale : 1.0 / std::sqrt(static_cast<double>(q.size(2)));
  out.sequences.window = layout.plan.window;
  if (layout.tensors.size() == at + 2) return out;
  out.tokens = layout.tensors[at + 2];
  out.sorted = layout.tensors[at + 3];
  out.order = layout.tensors[at + 4];
  out.first = layout.tensors[at + 5];
  return out;
}

RLALGO_INLINE AttentionOutput CudaOperations::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                        const AttentionLayout& layout) const {
  const Unrolled by = unrolled(q, layout);
  if (by.attention == nullptr) return AtenOperations::attention(q, k, v, layout);
  const tensor::VarlenOutput out = by.attention->forward(q, by.keys(k), by.keys(v), by.sequences);
  return {out.value, out.log_sum.t()};
}

RLALGO_INLINE AttentionGradient CudaOperations::attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                                   const Tensor& v, const AttentionOutput& out,
                                                                   const AttentionLayout& layout) const {
  const Unrolled by = unrolled(q, layout);
  if (by.attention == nullptr) return AtenOperations::attention_backward(grad, q, k, v, out, layout);
  const tensor::VarlenGradient g =
      by.attention->backward(grad.to(q.scalar_type()).contiguous(), q, by.keys(k), by.keys(v),
                             {out.value.contiguous(), out.log_sum.t().contiguous()}, by.sequences);
  const auto [grad_k, grad_v] = summed(g.k, g.v, by, k.size(0));
  return {g.q, grad_k, grad_v};
}

namespace detail {

// x [T, m·D] whose rows may lie apart.
[[nodiscard]] inline bool has_rows(const Tensor& x) { return x.dim() == 2 && x.stride(1) == 1; }

[[nodiscard]] inline cuda::UnrolledHeads unrolled_heads(const RawHeads& raw, const Tensor& tokens) {
  cuda::UnrolledHeads out;
  const Tensor* const from[] = {&raw.q, &raw.k, &raw.v};
  for (std::size_t i = 0; i < 3; ++i) {
    out.from[i] = from[i]->const_data_ptr();
    out.stride[i] = from[i]->stride(0);
  }
  if (raw.q_norm.defined()) {
    out.weight[0] = raw.q_norm.const_data_ptr();
    out.weight[1] = raw.k_norm.const_data_ptr();
  }
  if (raw.rope != nullptr) {
    out.cosine = raw.rope->cosine.const_data_ptr<float>();
    out.sine = raw.rope->sine.const_data_ptr<float>();
    out.half = raw.rope->cosine.size(1);
    out.interleaved = raw.rope->interleaved;
  }
  out.tokens = tokens.defined() ? tokens.const_data_ptr<std::int64_t>() : nullptr;
  out.rows = raw.q.size(0);
  out.keys = tokens.defined() ? tokens.size(0) : out.rows;
  out.head_dim = raw.head_dim;
  out.heads = raw.q.size(1) / raw.head_dim;
  out.kv_heads = raw.k.size(1) / raw.head_dim;
  out.epsilon = static_cast<float>(raw.norm.epsilon);
  out.one_more = raw.norm.unit_offset;
  out.once = raw.norm.rounded_once;
  out.element = tensor::element_of(raw.q);
  return out;
}

// What attention reads: [T, n, D], [K, kv, D] ×2.
struct ReadHeads {
  Tensor q, k, v;
};
[[nodiscard]] inline ReadHeads read_heads(const cuda::Kernels& own, const RawHeads& raw, cuda::UnrolledHeads a) {
  const ReadHeads out{raw.q.new_empty({a.rows, a.heads, a.head_dim}), raw.q.new_empty({a.keys, a.kv_heads, a.head_dim}),
                      raw.q.new_empty({a.keys, a.kv_heads, a.head_dim})};
  a.to[0] = out.q.mutable_data_ptr();
  a.to[1] = out.k.mutable_data_ptr();
  a.to[2] = out.v.mutable_data_ptr();
  tensor::launch(own, own.unrolled_heads, a, cuda::Kernel::unrolled_heads, raw.q);
  return out;
}

}  // namespace detail

RLALGO_INLINE const RawHeadsAttention* CudaOperations::of_raw_heads(const RawHeads& raw,
                                                                    const AttentionLayout& layout) const {
  const auto takes = [&](const Tensor& like) {
    return kernels().take(cuda::Kernel::unrolled_heads, like, raw.q_norm, raw.k_norm) != nullptr;
  };
  const std::int64_t dim = raw.head_dim;
  if (dim % 2 != 0 || dim > cuda::heads_width || !takes(raw.q.new_empty({0}))) return nullptr;
  for (const Tensor* x : {&raw.q, &raw.k, &raw.v})
    if (!detail::has_rows(*x) || x->scalar_type() != raw.q.scalar_type() || x->device() != raw.q.device())
      return nullptr;
  if (raw.q_norm.defined() != raw.k_norm.defined()) return nullptr;
  if (raw.q_norm.defined() && (raw.norm.centred || raw.q_norm.numel() != dim || raw.k_norm.numel() != dim))
    return nullptr;
  if (raw.rope != nullptr)
    for (const Tensor* x : {&raw.rope->cosine, &raw.rope->sine})
      if (x->scalar_type() != at::kFloat || !x->is_contiguous() || x->device() != raw.q.device()) return nullptr;
  return unrolled(raw.q.new_empty({0, raw.q.size(1) / dim, dim}), layout).attention != nullptr ? this : nullptr;
}

RLALGO_INLINE AttentionOutput CudaOperations::raw_attention(const RawHeads& raw, const AttentionLayout& layout) const {
  const Unrolled by = unrolled(raw.q.new_empty({0, raw.q.size(1) / raw.head_dim, raw.head_dim}), layout);
  const detail::ReadHeads read = detail::read_heads(*kernels().table, raw, detail::unrolled_heads(raw, by.tokens));
  const tensor::VarlenOutput out = by.attention->forward(read.q, read.k, read.v, by.sequences);
  return {out.value, out.log_sum.t()};
}

RLALGO_INLINE AttentionGradient CudaOperations::raw_attention_backward(const Tensor& grad, const RawHeads& raw,
                                                                       const AttentionOutput& out,
                                                                       const AttentionLayout& layout,
                                                                       const Tensor& grad_q_norm,
                                                                       const Tensor& grad_k_norm) const {
  const Unrolled by = unrolled(raw.q.new_empty({0, raw.q.size(1) / raw.head_dim, raw.head_dim}), layout);
  const cuda::Kernels& own = *kernels().table;
  cuda::UnrolledHeadsGradient a{.of = detail::unrolled_heads(raw, by.tokens)};
  const detail::ReadHeads read = detail::read_heads(own, raw, a.of);
  const tensor::VarlenGradient g =
      by.attention->backward(grad.to(raw.q.scalar_type()).contiguous(), read.q, read.k, read.v,
                             {out.value.contiguous(), out.log_sum.t().contiguous()}, by.sequences);
  const std::int64_t queries = raw.q.size(1), keys = raw.k.size(1);
  const Tensor all = raw.q.new_empty({raw.q.size(0), queries + 2 * keys});
  const AttentionGradient result{all.narrow(1, 0, queries), all.narrow(1, queries, keys),
                                 all.narrow(1, queries + keys, keys)};
  const Tensor* const grads[] = {&g.q, &g.k, &g.v};
  const Tensor* const outs[] = {&result.q, &result.k, &result.v};
  for (std::size_t i = 0; i < 3; ++i) {
    a.grad[i] = grads[i]->const_data_ptr();
    a.out[i] = outs[i]->mutable_data_ptr();
    a.out_stride[i] = all.size(1);
  }
  if (by.tokens.defined()) {
    a.first = by.first.const_data_ptr<std::int64_t>();
    a.order = by.order.const_data_ptr<std::int64_t>();
  }
  Tensor partial;  // read by the launch, whose memory is given back in the order of the stream
  if (grad_q_norm.defined() || grad_k_norm.defined()) {
    partial = tensor::empty({2, cuda::unrolled_heads_chunks(a.of.rows, a.of.heads), raw.head_dim},
                            raw.q.options().dtype(at::kFloat));
    a.partial = partial.mutable_data_ptr<float>();
    if (grad_q_norm.defined()) a.grad_weight[0] = grad_q_norm.mutable_data_ptr();
    if (grad_k_norm.defined()) a.grad_weight[1] = grad_k_norm.mutable_data_ptr();
  }
  tensor::launch(own, own.unrolled_heads_gradient, a, cuda::Kernel::unrolled_heads, raw.q);
  return result;
}

RLALGO_INLINE Tensor CudaOperations::dropout(const Tensor& x, const DropoutMask& mask) const {
  const cuda::Kernels* const own = kernels().take(cuda::Kernel::dropout, x);
  if (own == nullptr) return AtenOperations::dropout(x, mask);
  const Tensor out = tensor::empty_like(x);
  Tensor rows;
  if (mask.rows != nullptr)
    rows = mask.rows_there != nullptr
               ? *mask.rows_there
               : tensor::from_values(*mask.rows, at::TensorOptions().dtype(at::kLong).device(x.device()));
  tensor::launch(*own, own->dropout,
                 {.x = x.const_data_ptr(),
                  .out = out.mutable_data_ptr(),
                  .rows = rows.defined() ? rows.const_data_ptr<std::int64_t>() : nullptr,
                  .count = x.numel(),
                  .width = x.size(-1),
                  .seed = mask.seed,
                  .draw = mask.draw,
                  .module = mask.module,
                  .threshold = static_cast<std::uint32_t>(mask.probability * 0x1.0p32),
                  .keep = static_cast<float>(1.0 / (1.0 - mask.probability)),
                  .element = tensor::element_of(x)},
                 cuda::Kernel::dropout, x);
  return out;
}

RLALGO_INLINE std::pair<Tensor, Tensor> CudaOperations::summed(const Tensor& k, const Tensor& v, const Unrolled& by,
                                                               std::int64_t tokens) const {
  if (!by.tokens.defined()) return {k, v};
  const cuda::Kernels* const own = kernels().take(cuda::Kernel::segment_sum, k, v);
  const at::ScalarType type = own != nullptr ? k.scalar_type() : detail::accumulator_type(k.scalar_type());
  const Tensor sums = k.new_zeros({2, tokens, k.size(1), k.size(2)}, k.options().dtype(type));
  const std::pair<Tensor, Tensor> out(sums.select(0, 0), sums.select(0, 1));
  for (const auto& [x, sum] : {std::pair(&k, &out.first), std::pair(&v, &out.second)}) {
    if (own == nullptr) {
      sum->index_add_(0, by.tokens, x->to(type));
      continue;
    }
    detail::add_segments(*own, *x, by.sorted, by.order, *sum);
  }
  return {out.first.to(k.scalar_type()), out.second.to(v.scalar_type())};
}

}  // namespace rlalgo::model
