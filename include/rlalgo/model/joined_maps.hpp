// Maps that read the same input and whose weights lie one behind the other (q, k and v; gate and up), multiplied as one.
//
//   y = x [W₁; W₂; …]ᵀ + [b₁; b₂; …],   ∂x = ∂y [W₁; W₂; …],   ∂[W₁; …] += ∂yᵀ x,   ∂[b₁; …] += Σ_rows ∂y
//
// Shapes: x [S, in], y [S, Σ out]. Gradients of the weights lie one behind the other, too, from the first on. Sums differ from those of the
// maps one by one in the order of their addends: ∂x is one sum over Σ out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

namespace detail {

// The memory from where `first` begins as a tensor of its own, no view.
[[nodiscard]] inline Tensor memory_at(const Tensor& first, std::int64_t offset, c10::IntArrayRef sizes,
                                      c10::IntArrayRef strides) {
  const Tensor out = tensor::empty({0}, first.options().requires_grad(false));
  out.set_(first.storage(), offset, sizes, strides);
  return out;
}

// All of them as one, [Σ rows, …]; undefined where they do not lie one behind the other.
[[nodiscard]] inline Tensor over_all(const std::vector<Tensor>& parts) {
  std::int64_t rows = 0, offset = -1;
  for (const Tensor& part : parts) {
    if (!part.defined() || part.dim() == 0 || !part.is_contiguous()) return {};
    const Tensor& first = parts.front();
    if (offset >= 0 && (part.storage_offset() != offset || !part.is_alias_of(first) ||
                        part.scalar_type() != first.scalar_type() || part.sizes().slice(1) != first.sizes().slice(1)))
      return {};
    offset = part.storage_offset() + part.numel();
    rows += part.size(0);
  }
  std::vector<std::int64_t> shape = parts.front().sizes().vec();
  shape[0] = rows;
  return memory_at(parts.front(), parts.front().storage_offset(), shape, parts.front().strides());
}

// a [S, I₁], b [S, I₂], … as [a b …] where they are the columns of one [S, Σ I]; undefined where they are not.
[[nodiscard]] inline Tensor side_by_side(const std::vector<Tensor>& parts) {
  const Tensor& first = parts.front();
  std::int64_t width = 0;
  for (const Tensor& part : parts) {
    if (part.size(0) != first.size(0) || !part.is_alias_of(first) || part.scalar_type() != first.scalar_type() ||
        part.storage_offset() != first.storage_offset() + width || part.stride(1) != 1 ||
        part.stride(0) != first.stride(0))
      return {};
    width += part.size(1);
  }
  if (first.stride(0) != width) return {};
  return memory_at(first, first.storage_offset(), {first.size(0), width}, {width, 1});
}
// The same, copied side by side where they are not.
[[nodiscard]] inline Tensor as_columns(const std::vector<Tensor>& parts) {
  const Tensor whole = side_by_side(parts);
  return whole.defined() ? whole : tensor::concatenate(parts, 1);
}

}  // namespace detail

class JoinedMaps {
 public:
  // Null where they cannot be one: adapted, quantised, apart, or not all of them trained or frozen.
  [[nodiscard]] static std::optional<JoinedMaps> of(std::initializer_list<const Linear*> maps) {
    JoinedMaps out;
    std::vector<Tensor> biases;
    for (const Linear* map : maps) {
      if (!map->weight.defined() || map->lora.defined() || map->quantised) return std::nullopt;
      out.weights_.push_back(map->weight);
      if (map->bias.defined()) biases.push_back(map->bias);
    }
    const auto alike = [](const std::vector<Tensor>& of) {
      for (const Tensor& one : of)
        if (one.requires_grad() != of.front().requires_grad()) return false;
      return true;
    };
    if (!alike(out.weights_) || !alike(biases) || (!biases.empty() && biases.size() != maps.size()))
      return std::nullopt;
    out.weight_ = detail::over_all(out.weights_);
    if (!biases.empty()) out.bias_ = detail::over_all(biases);
    if (!out.weight_.defined() || out.bias_.defined() != !biases.empty()) return std::nullopt;
    out.biases_ = std::move(biases);
    return out;
  }

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    return bias_.defined() ? tensor::addmm(bias_, x, weight_.t()) : tensor::mm(x, weight_.t());
  }

  // Adds the gradients of weights and biases; returns ∂x. `x` may be undefined where the weights are frozen.
  [[nodiscard]] Tensor backward(const Tensor& grad_y, const Tensor& x) const {
    add(
        weights_, [&] { return tensor::mm(grad_y.t(), x); },
        [&](const Tensor& sum) { tensor::addmm_(sum, grad_y.t(), x); },
        [&](const Tensor& sum, std::int64_t first) {
          tensor::addmm_(sum, grad_y.narrow(1, first, sum.size(0)).t(), x);
        });
    add(
        biases_, [&] { return grad_y.sum(0); }, [&](const Tensor& sum) { sum.add_(grad_y.sum(0)); },
        [&](const Tensor& sum, std::int64_t first) { sum.add_(grad_y.narrow(1, first, sum.size(0)).sum(0)); });
    return tensor::mm(grad_y, weight_);
  }

 private:
  // make(): all of the gradient, where there is none; add_all(sum), where it lies together; add_part(sum, first row) else.
  template <class Make, class AddAll, class AddPart>
  static void add(const std::vector<Tensor>& leaves, const Make& make, const AddAll& add_all, const AddPart& add_part) {
    if (leaves.empty() || !leaves.front().requires_grad()) return;
    std::vector<Tensor> gradients;
    bool none = true;
    for (const Tensor& leaf : leaves) {
      gradients.push_back(leaf.grad());
      none = none && !leaf.grad().defined();
    }
    if (none) {
      const Tensor all = make().contiguous();
      std::int64_t offset = all.storage_offset();
      for (const Tensor& leaf : leaves) {
        leaf.mutable_grad() = detail::memory_at(all, offset, leaf.sizes(), leaf.strides());
        offset += leaf.numel();
      }
      return;
    }
    if (const Tensor all = detail::over_all(gradients); all.defined()) return add_all(all);
    std::int64_t first = 0;
    for (const Tensor& leaf : leaves) {
      add_part(gradient_buffer(leaf), first);
      first += leaf.size(0);
    }
  }

  Tensor weight_, bias_;  // of all; no bias: undefined
  std::vector<Tensor> weights_, biases_;
};

}  // namespace rlalgo::model
