// Affine maps with an optional low-rank adapter, and the accumulation of their weights' gradients.
//
//   y = x Wᵀ + b                                   ∂x = ∂y W,   ∂W += ∂yᵀ x,   ∂b += Σ_rows ∂y
//   LoRA:  y += s·u Bᵀ,  u = D(x) Aᵀ               ∂B += s·∂yᵀ u,   ∂u = s·∂y B,   ∂A += ∂uᵀ D(x),   ∂x += Dᵀ(∂u A)
//   DoRA:  y += (ν − 1)⊙(D(x) Wᵀ) + ν⊙(s·u Bᵀ),   ν = m / ‖W + s·B A‖ per output row; ∂m = Σ_rows ∂y⊙(…)/‖…‖
//
// Source: LoRA, Hu et al., arXiv 2106.09685, eq. 3; DoRA, Liu et al., arXiv 2402.09353, eq. 5, and section 4.3: the
// norm is a constant to the gradient. D is dropout (operations.hpp), with the same mask in forward, recomputation and
// backward.
// Shapes: x [R, in], W [out, in], b [out], y [R, out], A [r, in], B [out, r], m and ν [out]. Weight gradients are added
// to `weight.grad()` in place, so that a micro-batch needs no second copy of them; a weight that does not require grad
// gets none. The adapter's product runs in the adapter's dtype, as PEFT does (float32 over a bfloat16 base). A quantised W is frozen;
// quantised_linear.hpp has its products.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/quantised_linear.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

// The random numbers of one forward pass.
struct DropoutDraw {
  const Operations* operations = nullptr;  // that draw the masks; null: no dropout
  std::uint64_t seed = 0;
  std::uint64_t draw = 0;                           // names the forward pass within the run
  const std::vector<std::int64_t>* rows = nullptr;  // DropoutMask::rows of what is dropped from
  const Tensor* rows_there = nullptr;               // and DropoutMask::rows_there

  [[nodiscard]] bool drops(const Lora& lora) const { return operations != nullptr && lora.dropout > 0.0; }
};

// ‖W + s·B A‖ of each output row, [out] in the adapter's dtype.
[[nodiscard]] inline Tensor adapted_norm(const Tensor& weight, const Lora& lora) {
  return tensor::euclidean_norm(tensor::addmm(weight.to(lora.a.scalar_type()), lora.b, lora.a, 1.0, lora.scale), 1);
}
[[nodiscard]] inline Tensor adapted_norm(const Linear& map, const Lora& lora) {
  return map.quantised ? quantised_row_norm(*map.quantised, lora.a, lora.b, lora.scale)
                       : adapted_norm(map.weight, lora);
}

namespace detail {

// x Wᵀ.
[[nodiscard]] inline Tensor product(const Tensor& x, const Linear& map) {
  return map.quantised ? quantised_product(x, *map.quantised) : tensor::mm(x, map.weight.t());
}

// D(x).
[[nodiscard]] inline Tensor dropped(const Tensor& x, const Lora& lora, const DropoutDraw& draw) {
  if (!draw.drops(lora)) return x;
  return draw.operations->dropout(x, {lora.dropout, draw.seed, draw.draw, lora.index, draw.rows, draw.rows_there});
}

// What the adapter adds to `base` = x Wᵀ (without bias), in the adapter's dtype.
[[nodiscard]] inline Tensor adapted(const Tensor& base, const Tensor& x, const Linear& map, const DropoutDraw& draw) {
  const Lora& lora = map.lora;
  const at::ScalarType type = lora.a.scalar_type();
  const Tensor input = dropped(x, lora, draw).to(type);
  const Tensor rank = tensor::mm(input, lora.a.t());
  if (!lora.magnitude.defined()) return tensor::addmm(base.to(type), rank, lora.b.t(), 1.0, lora.scale);
  const Tensor ratio = lora.magnitude.div(adapted_norm(map, lora));
  if (!draw.drops(lora)) return tensor::addmm(base.to(type), rank, lora.b.t(), 1.0, lora.scale).mul_(ratio);
  const Tensor kept = product(input.to(x.scalar_type()), map).to(type);
  return base.to(type).add(tensor::addmm(kept, rank, lora.b.t(), 1.0, lora.scale).mul_(ratio).sub_(kept));
}

}  // namespace detail

[[nodiscard]] inline Tensor linear(const Tensor& x, const Linear& map, const DropoutDraw& draw = {}) {
  if (!map.lora.defined()) {
    if (map.quantised) return quantised_product(x, *map.quantised, map.bias);
    return map.bias.defined() ? tensor::addmm(map.bias, x, map.weight.t()) : tensor::mm(x, map.weight.t());
  }
  Tensor out = detail::adapted(detail::product(x, map), x, map, draw);
  if (map.bias.defined()) out.add_(map.bias);
  return out.to(x.scalar_type());
}

// residual + linear(x)
[[nodiscard]] inline Tensor linear_residual(const Tensor& residual, const Tensor& x, const Linear& map,
                                            const DropoutDraw& draw = {}) {
  if (map.lora.defined() || map.quantised) return linear(x, map, draw).add_(residual);
  Tensor out = tensor::addmm(residual, x, map.weight.t());
  if (map.bias.defined()) out.add_(map.bias);
  return out;
}

// The gradient buffer of a weight, zeros at first use; undefined when the weight is not trained.
[[nodiscard]] inline Tensor gradient_buffer(const Tensor& weight) {
  if (!weight.defined() || !weight.requires_grad()) return {};
  Tensor& gradient = weight.mutable_grad();
  if (!gradient.defined()) gradient = weight.detach().new_zeros(weight.sizes());
  return gradient;
}

// True if the map's own weights want a gradient, and so the input that it saw, or if it has an adapter, whose backward pass
// reads it trained or not.
[[nodiscard]] inline bool wants_input(const Linear& map) {
  return map.weight.requires_grad() || map.lora.defined() || (map.bias.defined() && map.bias.requires_grad());
}

namespace detail {

// ∂W += ∂yᵀ x, without a second buffer.
inline void add_product_gradient(const Tensor& weight, const Tensor& left, const Tensor& right, double scale = 1.0) {
  if (!weight.requires_grad()) return;
  Tensor& gradient = weight.mutable_grad();
  if (gradient.defined()) {
    tensor::addmm_(gradient, left.t(), right, 1.0, scale);
  } else {
    gradient = tensor::mm(left.t(), right);
    if (scale != 1.0) gradient.mul_(scale);
  }
}

[[nodiscard]] inline Tensor add_input_gradient(Tensor grad_x, const Tensor& grad_y, const Tensor& weight) {
  return grad_x.defined() ? tensor::addmm_(grad_x, grad_y, weight) : tensor::mm(grad_y, weight);
}
[[nodiscard]] inline Tensor add_input_gradient(Tensor grad_x, const Tensor& grad_y, const Linear& map) {
  return map.quantised ? quantised_input_gradient(std::move(grad_x), grad_y, *map.quantised)
                       : add_input_gradient(std::move(grad_x), grad_y, map.weight);
}

[[nodiscard]] inline Tensor lora_backward(const Linear& map, const Tensor& grad_y, const Tensor& x, Tensor grad_x,
                                          const DropoutDraw& draw) {
  const Lora& lora = map.lora;
  const at::ScalarType type = lora.a.scalar_type();
  const Tensor input = dropped(x, lora, draw).to(type), rank = tensor::mm(input, lora.a.t());
  Tensor grad = grad_y.to(type);
  const bool masked = draw.drops(lora);
  Tensor grad_input;  // of D(x)
  if (lora.magnitude.defined()) {
    const Tensor norm = adapted_norm(map, lora), ratio = lora.magnitude.div(norm);
    if (Tensor gradient = gradient_buffer(lora.magnitude); gradient.defined()) {
      Tensor seen = product(input.to(x.scalar_type()), map).to(type);
      seen = tensor::addmm(seen, rank, lora.b.t(), 1.0, lora.scale);
      gradient.add_(seen.mul_(grad).sum(0).div_(norm));
    }
    const Tensor scaled = grad.mul(ratio);
    if (masked) {
      grad_x = add_input_gradient(grad_x, grad_y, map);
      grad_input = add_input_gradient({}, scaled.sub(grad).to(x.scalar_type()), map).to(type);
    } else {
      grad_x = add_input_gradient(grad_x, scaled.to(x.scalar_type()), map);
    }
    grad = scaled;
  } else {
    grad_x = add_input_gradient(grad_x, grad_y, map);
  }
  add_product_gradient(lora.b, grad, rank, lora.scale);
  const Tensor grad_rank = tensor::mm(grad, lora.b).mul_(lora.scale);
  add_product_gradient(lora.a, grad_rank, input);
  grad_input = add_input_gradient(grad_input, grad_rank, lora.a);
  if (masked) grad_input = dropped(grad_input, lora, draw);
  return grad_x.add_(grad_input);
}

}  // namespace detail

// Adds the gradients of weight, bias and adapter; returns ∂x, added to `grad_x` when that is defined. `x` may be
// undefined when wants_input(map) is false.
[[nodiscard]] inline Tensor linear_backward(const Linear& map, const Tensor& grad_y, const Tensor& x,
                                            Tensor grad_x = {}, const DropoutDraw& draw = {}) {
  detail::add_product_gradient(map.weight, grad_y, x);
  if (Tensor gradient = gradient_buffer(map.bias); gradient.defined()) gradient.add_(grad_y.sum(0));
  if (!map.lora.defined()) return detail::add_input_gradient(std::move(grad_x), grad_y, map);
  return detail::lora_backward(map, grad_y, x, std::move(grad_x), draw);
}

}  // namespace rlalgo::model
