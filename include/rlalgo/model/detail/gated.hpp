// Gated activations and their gradients (operations.hpp) by ATen's operators.
#pragma once

#include <rlalgo/model/layer_spec.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model::detail {

inline void activate_into(Activation act, const tensor::Tensor& x, const tensor::Tensor& out) {
  act == Activation::silu ? tensor::silu_into(x, out) : tensor::gelu_tanh_into(x, out);
}

inline void gated(Activation act, const tensor::Tensor& gate, const tensor::Tensor& up, const tensor::Tensor& out) {
  activate_into(act, gate, out);
  out.mul_(up);
}

inline void gated_backward(Activation act, const tensor::Tensor& grad, const tensor::Tensor& gate,
                           const tensor::Tensor& up) {
  const tensor::Tensor of_act = grad.mul(up);
  activate_into(act, gate, up);
  up.mul_(grad);
  act == Activation::silu ? tensor::silu_backward_into(of_act, gate, gate)
                          : tensor::gelu_tanh_backward_into(of_act, gate, gate);
}

}  // namespace rlalgo::model::detail
