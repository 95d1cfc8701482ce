// SwiGLU and its gradients (operations.hpp) by ATen's operators.
#pragma once

#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model::detail {

inline void swiglu(const tensor::Tensor& gate, const tensor::Tensor& up, const tensor::Tensor& out) {
  tensor::silu_into(gate, out);
  out.mul_(up);
}

inline void swiglu_backward(const tensor::Tensor& grad, const tensor::Tensor& gate, const tensor::Tensor& up) {
  const tensor::Tensor of_silu = grad.mul(up);
  tensor::silu_into(gate, up);
  up.mul_(grad);
  tensor::silu_backward_into(of_silu, gate, gate);
}

}  // namespace rlalgo::model::detail
