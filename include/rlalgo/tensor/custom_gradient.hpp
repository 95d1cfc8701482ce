// An operation with a hand-written backward pass, as one node of the autograd graph.
//
//   out = attach_gradient(value, {x₀, x₁, …}, gradient)      out equals value; ∂/∂xᵢ = gradient(i, ∂L/∂out, zeros)
//
// `value` is computed by the caller without gradient. During backward `gradient` is called once for each input that
// requires grad, the last input first, with the gradient of `out` and a zero-filled buffer shaped like the input, which
// it may fill and return, so that a large gradient is allocated once.
//
// Built on tensor hooks: torch::autograd::Function would add 2.7 s and 330 MB to the compilation of every file that
// includes it (g++ 12), which is what is saved here.
//
// Errors: tensor.4 a second derivative is asked for.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

using GradientFunction = std::function<Tensor(std::size_t input, const Tensor& grad_out, Tensor zeros)>;

// True if a result computed from `inputs` must carry gradient.
inline bool needs_gradient(const std::vector<Tensor>& inputs) {
  if (!c10::GradMode::is_enabled()) return false;
  for (const Tensor& x : inputs)
    if (x.defined() && x.requires_grad()) return true;
  return false;
}

inline Tensor attach_gradient(const Tensor& value, const std::vector<Tensor>& inputs, GradientFunction gradient) {
  if (!needs_gradient(inputs)) return value;
  struct Node {
    GradientFunction gradient;
    Tensor grad_out;
  };
  const auto node = std::make_shared<Node>(Node{std::move(gradient), {}});
  // Each input is reached through the sum of an empty slice of a view of it: exactly zero in the forward pass, a zero
  // gradient in the backward pass, which the hook on the view replaces.
  Tensor link;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    const Tensor view = inputs[i].view_as(inputs[i]);
    view.register_hook([node, i](const Tensor& zeros) { return node->gradient(i, node->grad_out, zeros); });
    const Tensor zero = (view.dim() == 0 ? view.unsqueeze(0) : view).narrow(0, 0, 0).sum().to(value.options());
    link = link.defined() ? link.add(zero) : zero;
  }
  Tensor out = value.detach().add(link);
  out.register_hook([node](const Tensor& grad) {
    if (c10::GradMode::is_enabled())
      core::raise("tensor", 4,
                  {.what = "an operation with a hand-written backward has no second derivative",
                   .remedy = "call backward without create_graph"});
    node->grad_out = grad;
  });
  return out;
}

}  // namespace rlalgo::tensor
