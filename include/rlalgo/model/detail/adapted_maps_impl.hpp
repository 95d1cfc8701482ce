// Definitions of adapted_maps.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm_ops.h>
#include <c10/util/accumulate.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/adapted_maps.hpp>
#include <rlalgo/model/detail/quantised_weight_impl.hpp>
#include <rlalgo/model/quantised_linear.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/wide_product.hpp>

namespace rlalgo::model {

namespace detail {

// out ← addend + a b, which may be undefined.
inline void multiply_into(Tensor out, const Tensor& addend, const Tensor& a, const Tensor& b) {
  if (addend.defined())
    at::_ops::addmm_out::call(addend, a, b, 1.0, 1.0, out);
  else
    tensor::addmm_(out, a, b, 0.0);
}

// [count, S, width] over columns of u [S, R], from `first` on.
inline Tensor batch_of_columns(const Tensor& u, std::int64_t first, std::int64_t count, std::int64_t width) {
  return u.as_strided({count, u.size(0), width}, {width * u.stride(1), u.stride(0), u.stride(1)},
                      u.storage_offset() + first * u.stride(1));
}

// `count` matrices of one shape from `first` on as [count, S, width]; undefined where they do not lie at equal distances in one memory.
inline Tensor batch_of(const std::vector<Tensor>& parts, std::size_t first, std::size_t count) {
  const Tensor& one = parts[first];
  const std::int64_t step = count > 1 ? parts[first + 1].storage_offset() - one.storage_offset() : 0;
  for (std::size_t i = 1; i < count; ++i) {
    const Tensor& next = parts[first + i];
    if (step <= 0 || !next.is_alias_of(one) || next.strides() != one.strides() ||
        next.storage_offset() != one.storage_offset() + static_cast<std::int64_t>(i) * step)
      return {};
  }
  return one.as_strided({static_cast<std::int64_t>(count), one.size(0), one.size(1)},
                        {step, one.stride(0), one.stride(1)}, one.storage_offset());
}

// The gradients of leaves, which have equal columns, as one [Σ rows, …].
struct JoinedGradient {
  Tensor all;         // undefined: they do not lie together, or not all of the leaves are trained
  double beta = 1.0;  // of what is there; 0: new memory, which holds nothing yet
};
inline JoinedGradient joined_gradient(const std::vector<Tensor>& leaves) {
  std::vector<Tensor> gradients;
  std::int64_t rows = 0;
  bool none = true;
  for (const Tensor& leaf : leaves) {
    if (!leaf.requires_grad()) return {};
    gradients.push_back(leaf.grad());
    none = none && !leaf.grad().defined();
    rows += leaf.size(0);
  }
  if (!none) return {over_all(gradients), 1.0};
  const Tensor all = tensor::empty({rows, leaves.front().size(1)}, leaves.front().options().requires_grad(false));
  std::int64_t offset = 0;
  for (const Tensor& leaf : leaves) {
    leaf.mutable_grad() = memory_at(all, offset, leaf.sizes(), {leaf.size(1), 1});
    offset += leaf.numel();
  }
  return {all, 0.0};
}

// ∂leaf += alpha·a b.
inline void add_to_gradient(const Tensor& leaf, const Tensor& a, const Tensor& b, double alpha) {
  if (const Tensor gradient = gradient_buffer(leaf); gradient.defined())
    tensor::addmm_wide_(gradient, a, b, 1.0, alpha);
}

}  // namespace detail

RLALGO_INLINE AdaptedMaps::AdaptedMaps(const std::vector<const Linear*>& maps, at::ScalarType type) {
  const bool any = std::any_of(maps.begin(), maps.end(), [](const Linear* map) { return map->lora.defined(); });
  const bool all = std::all_of(maps.begin(), maps.end(), [&](const Linear* map) {
    const Lora& lora = map->lora;
    if (!map->weight.defined() || map->weight.requires_grad() || lora.magnitude.defined()) return false;
    return !lora.defined() || lora.a.scalar_type() == type ||
           (type == at::kBFloat16 && lora.a.scalar_type() == at::kFloat);
  });
  if (!any || !all) return;
  std::vector<Tensor> weights, biases;
  for (const Linear* const map : maps) {
    const std::int64_t rank = map->lora.defined() ? map->lora.a.size(0) : 0;
    const std::int64_t width = map->weight.size(0);
    if (rank > 0) {
      const bool joins = !runs_.empty() && runs_.back().first + runs_.back().count == parts_.size() &&
                         runs_.back().rank == rank && runs_.back().width == width &&
                         runs_.back().scale == map->lora.scale;
      if (joins)
        ++runs_.back().count;
      else
        runs_.push_back({parts_.size(), 1, rank, width, map->lora.scale, {}});
    }
    parts_.push_back({map, width, ranks_, rank});
    ranks_ += rank;
    if (!map->quantised) weights.push_back(map->weight);
    if (map->bias.defined()) biases.push_back(map->bias);
  }
  if (weights.size() == maps.size()) weight_ = detail::over_all(weights);
  if (biases.size() == maps.size()) bias_ = detail::over_all(biases);
  biases_apart_ = !biases.empty() && !bias_.defined();
}

RLALGO_INLINE AdaptedMaps AdaptedMaps::of(const std::vector<const Linear*>& maps, at::ScalarType type) {
  AdaptedMaps out(maps, type);
  prepare({&out}, type);
  return out;
}

RLALGO_INLINE void AdaptedMaps::prepare(const std::vector<AdaptedMaps*>& all, at::ScalarType type) {
  struct Copy {
    Tensor* into;
    std::vector<std::int64_t> shape;
    std::vector<Tensor> from;
  };
  std::vector<Copy> copies;
  // `into` ← the parts, one behind the other; no copy where they lie so.
  const auto take = [&](Tensor& into, std::vector<std::int64_t> shape, std::vector<Tensor> from) {
    if (from.front().scalar_type() == type)
      if (const Tensor there = detail::over_all(from); there.defined()) {
        into = there.view(shape);
        return;
      }
    copies.push_back({&into, std::move(shape), std::move(from)});
  };
  for (AdaptedMaps* const maps : all) {
    if (!*maps) continue;
    std::vector<Tensor> rows;
    for (const Part& part : maps->parts_)
      if (part.rank > 0) rows.push_back(part.map->lora.a.detach());
    const std::int64_t inputs = rows.front().size(1);
    take(maps->a_, {maps->ranks_, inputs}, std::move(rows));
    for (Run& run : maps->runs_) {
      std::vector<Tensor> parts;
      for (std::size_t i = 0; i < run.count; ++i) parts.push_back(maps->parts_[run.first + i].map->lora.b.detach());
      take(run.b, {static_cast<std::int64_t>(run.count), run.width, run.rank}, std::move(parts));
    }
  }
  if (copies.empty()) return;
  std::vector<Tensor> flat;
  for (const Copy& copy : copies)
    for (const Tensor& one : copy.from) flat.push_back(one.reshape({-1}));
  const Tensor memory = tensor::concatenate(flat, 0).to(type);
  std::int64_t begin = 0;
  for (Copy& copy : copies) {
    const std::int64_t numbers = c10::multiply_integers(copy.shape);
    *copy.into = memory.narrow(0, begin, numbers).view(copy.shape);
    begin += numbers;
  }
}

RLALGO_INLINE bool AdaptedMaps::drops(const DropoutDraw& draw) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Part& part) { return part.rank > 0 && draw.drops(part.map->lora); });
}

RLALGO_INLINE Tensor AdaptedMaps::whole_base(at::ScalarType type) const {
  if (weight_.defined()) return weight_;
  std::int64_t rows = 0, tile = 0;
  const std::int64_t columns = parts_.front().map->weight.size(1);
  for (const Part& part : parts_) {
    const auto& quantised = part.map->quantised;
    if (!quantised || quantised->compute() != type || detail::dequantises(*quantised, type) == nullptr) return {};
    tile = quantised->tile();
    rows += part.width;
  }
  if (rows * columns > tile) return {};
  const Tensor out = tensor::empty({rows, columns}, a_.options());
  std::int64_t first = 0;
  for (const Part& part : parts_) {
    if (!detail::write_part_by_kernel(*part.map->quantised, 0, 0, out.narrow(0, first, part.width))) return {};
    first += part.width;
  }
  return out;
}

RLALGO_INLINE Tensor AdaptedMaps::ranks_of(const Tensor& x, const DropoutDraw& draw) const {
  if (!drops(draw)) return tensor::mm(x, a_.t());
  const Tensor out = tensor::empty({x.size(0), ranks_}, x.options());
  for (const Part& part : parts_)
    if (part.rank > 0)
      tensor::addmm_(out.narrow(1, part.first, part.rank), detail::dropped(x, part.map->lora, draw),
                     a_.narrow(0, part.first, part.rank).t(), 0.0);
  return out;
}

RLALGO_INLINE void AdaptedMaps::multiply_base(const std::vector<Tensor>& outs, const Tensor& all, const Tensor& x,
                                              const Tensor& residual) const {
  if (all.defined() && !biases_apart_)
    if (const Tensor whole = whole_base(x.scalar_type()); whole.defined()) {
      detail::multiply_into(all, residual.defined() ? residual : bias_, x, whole.t());
      if (residual.defined() && bias_.defined()) Tensor(all).add_(bias_);
      return;
    }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Linear& map = *parts_[i].map;
    Tensor out = outs[i];
    const Tensor& addend = residual.defined() ? residual : map.bias;
    if (map.quantised && map.quantised->compute() != x.scalar_type()) {
      out.copy_(quantised_product(x, *map.quantised));
      if (addend.defined()) out.add_(addend);
    } else if (map.quantised) {
      const QuantisedWeight& w = *map.quantised;
      detail::each_tile(w, w.rows(), w.columns(), [&](std::int64_t begin, std::int64_t count) {
        const Tensor tile = w.part(begin, count, 0, w.columns(), w.compute());
        const Tensor part = addend.defined() ? addend.narrow(addend.dim() - 1, begin, count) : Tensor();
        detail::multiply_into(out.narrow(1, begin, count), part, x, tile.t());
      });
    } else {
      detail::multiply_into(out, addend, x, map.weight.t());
    }
    if (residual.defined() && map.bias.defined()) out.add_(map.bias);
  }
}

RLALGO_INLINE std::vector<Tensor> AdaptedMaps::forward(const Tensor& x, Outputs outputs, const DropoutDraw& draw,
                                                       Tensor& ranks, const Tensor& residual) const {
  std::int64_t width = 0, first = 0;
  for (const Part& part : parts_) width += part.width;
  const std::int64_t rows = x.size(0);
  const Tensor memory = tensor::empty({rows * width}, x.options());
  const Tensor all = outputs == Outputs::columns || parts_.size() == 1 ? memory.view({rows, width}) : Tensor();
  std::vector<Tensor> outs;
  for (const Part& part : parts_) {
    outs.push_back(all.defined() ? all.narrow(1, first, part.width)
                                 : memory.narrow(0, rows * first, rows * part.width).view({rows, part.width}));
    first += part.width;
  }
  multiply_base(outs, all, x, residual);
  ranks = ranks_of(x, draw);
  for (const Run& run : runs_) {
    const Part& one = parts_[run.first];
    if (run.count == 1)
      tensor::addmm_(outs[run.first], ranks.narrow(1, one.first, run.rank), run.b[0].t(), 1.0, run.scale);
    else
      tensor::addmm_wide_(detail::batch_of(outs, run.first, run.count),
                          detail::batch_of_columns(ranks, one.first, static_cast<std::int64_t>(run.count), run.rank),
                          run.b.transpose(1, 2), 1.0, run.scale);
  }
  return outs;
}

RLALGO_INLINE Tensor AdaptedMaps::base_gradient(const std::vector<Tensor>& grads) const {
  if (const Tensor all = grads.size() == 1 ? grads.front() : detail::side_by_side(grads); all.defined())
    if (const Tensor whole = whole_base(all.scalar_type()); whole.defined()) return tensor::mm(all, whole);
  Tensor out;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    out = detail::add_input_gradient(std::move(out), grads[i], *parts_[i].map);
  return out;
}

RLALGO_INLINE Tensor AdaptedMaps::rank_gradient(const std::vector<Tensor>& grads) const {
  const Tensor out = tensor::empty({grads.front().size(0), ranks_}, grads.front().options());
  for (const Run& run : runs_) {
    const std::int64_t first = parts_[run.first].first;
    const Tensor batch = run.count > 1 ? detail::batch_of(grads, run.first, run.count) : Tensor();
    if (batch.defined()) {
      tensor::addmm_wide_(detail::batch_of_columns(out, first, static_cast<std::int64_t>(run.count), run.rank), batch,
                          run.b, 0.0, run.scale);
      continue;
    }
    for (std::size_t i = 0; i < run.count; ++i)
      tensor::addmm_(out.narrow(1, first + static_cast<std::int64_t>(i) * run.rank, run.rank), grads[run.first + i],
                     run.b[static_cast<std::int64_t>(i)], 0.0, run.scale);
  }
  return out;
}

RLALGO_INLINE void AdaptedMaps::add_b_gradients(const std::vector<Tensor>& grads, const Tensor& ranks) const {
  for (const Run& run : runs_) {
    const auto count = static_cast<std::int64_t>(run.count);
    const std::int64_t first = parts_[run.first].first;
    if (const Tensor batch = detail::batch_of(grads, run.first, run.count); batch.defined()) {
      std::vector<Tensor> leaves;
      for (std::size_t i = 0; i < run.count; ++i) leaves.push_back(parts_[run.first + i].map->lora.b);
      if (const auto [all, beta] = detail::joined_gradient(leaves); all.defined()) {
        if (count == 1)
          tensor::addmm_wide_(all, grads[run.first].t(), ranks.narrow(1, first, run.rank), beta, run.scale);
        else
          tensor::addmm_wide_(all.view({count, run.width, run.rank}), batch.transpose(1, 2),
                              detail::batch_of_columns(ranks, first, count, run.rank), beta, run.scale);
        continue;
      }
    }
    for (std::size_t i = 0; i < run.count; ++i)
      detail::add_to_gradient(parts_[run.first + i].map->lora.b, grads[run.first + i].t(),
                              ranks.narrow(1, first + static_cast<std::int64_t>(i) * run.rank, run.rank), run.scale);
  }
}

RLALGO_INLINE void AdaptedMaps::add_a_gradients(const Tensor& grad_ranks, const Tensor& x,
                                                const DropoutDraw& draw) const {
  const bool masked = drops(draw);
  if (!masked) {
    std::vector<Tensor> leaves;
    for (const Part& part : parts_)
      if (part.rank > 0) leaves.push_back(part.map->lora.a);
    if (const auto [all, beta] = detail::joined_gradient(leaves); all.defined())
      return tensor::addmm_wide_(all, grad_ranks.t(), x, beta);
  }
  for (const Part& part : parts_)
    if (part.rank > 0 && part.map->lora.a.requires_grad())
      detail::add_to_gradient(part.map->lora.a, grad_ranks.narrow(1, part.first, part.rank).t(),
                              detail::dropped(x, part.map->lora, draw), 1.0);
}

RLALGO_INLINE Tensor AdaptedMaps::backward(const std::vector<Tensor>& grads, const Tensor& x, const Tensor& ranks,
                                           const DropoutDraw& draw) const {
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (Tensor gradient = gradient_buffer(parts_[i].map->bias); gradient.defined()) gradient.add_(grads[i].sum(0));
  add_b_gradients(grads, ranks);
  const Tensor grad_ranks = rank_gradient(grads);
  add_a_gradients(grad_ranks, x, draw);
  Tensor out = base_gradient(grads);
  if (!drops(draw)) {
    tensor::addmm_(out, grad_ranks, a_);
    return out;
  }
  for (const Part& part : parts_)
    if (part.rank > 0)
      out.add_(
          detail::dropped(tensor::mm(grad_ranks.narrow(1, part.first, part.rank), a_.narrow(0, part.first, part.rank)),
                          part.map->lora, draw));
  return out;
}

RLALGO_INLINE AdaptedLayer::AdaptedLayer(const LayerWeights& w, const Tensor& x) {
  if (x.is_cpu()) return;
  const at::ScalarType type = x.scalar_type();
  const auto one_or = [](const Linear& one, std::vector<const Linear*> several) {
    return one.weight.defined() ? std::vector<const Linear*>{&one} : std::move(several);
  };
  attention = AdaptedMaps(one_or(w.qkv_proj, {&w.q_proj, &w.k_proj, &w.v_proj}), type);
  output = AdaptedMaps({&w.o_proj}, type);
  gate_up = AdaptedMaps(one_or(w.gate_up_proj, {&w.gate_proj, &w.up_proj}), type);
  down = AdaptedMaps({&w.down_proj}, type);
  AdaptedMaps::prepare({&attention, &output, &gate_up, &down}, type);
}

}  // namespace rlalgo::model
