// Affine maps and the accumulation of their weights' gradients.
//
//   y = x Wᵀ + b,   ∂x = ∂y W,   ∂W += ∂yᵀ x,   ∂b += Σ_rows ∂y
//
// Shapes: x [R, in], W [out, in], b [out], y [R, out]. Weight gradients are added to `weight.grad()` in place, so that
// a micro-batch needs no second copy of them; a weight that does not require grad gets none.
#pragma once

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

[[nodiscard]] inline Tensor linear(const Tensor& x, const Linear& map) {
  return map.bias.defined() ? at::addmm(map.bias, x, map.weight.t()) : at::mm(x, map.weight.t());
}

// residual + linear(x)
[[nodiscard]] inline Tensor linear_residual(const Tensor& residual, const Tensor& x, const Linear& map) {
  Tensor out = at::addmm(residual, x, map.weight.t());
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

inline void accumulate_linear_gradient(const Linear& map, const Tensor& grad_y, const Tensor& x) {
  if (map.weight.requires_grad()) {
    Tensor& gradient = map.weight.mutable_grad();
    if (gradient.defined()) {
      gradient.addmm_(grad_y.t(), x);
    } else {
      gradient = at::mm(grad_y.t(), x);
    }
  }
  if (Tensor gradient = gradient_buffer(map.bias); gradient.defined()) gradient.add_(grad_y.sum(0));
}

}  // namespace rlalgo::model
