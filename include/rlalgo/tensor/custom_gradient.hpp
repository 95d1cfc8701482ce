// An operation with a hand-written backward pass, as one node of the autograd graph.
//
//   out = attach_gradient(value, {x₀, x₁, …}, gradient)      out equals value; {∂L/∂xᵢ} = gradient(∂L/∂out)
//
// `value` is computed by the caller without gradient. `gradient` is called once per backward pass and returns one
// tensor per input, of the input's shape and dtype; entries of inputs that need no gradient may be undefined.
//
// Built on tensor hooks: torch::autograd::Function would add 2.7 s and 330 MB to the compilation of every file that
// includes it (g++ 12), which is what is saved here.
//
// Errors: [rlalgo.tensor.4] a second derivative is asked for.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/tensor/tensor.hpp>

// Needs the tensor type before it.
#include <ATen/ops/_efficientzerotensor_ops.h>

namespace rlalgo::tensor {

using GradientFunction = std::function<std::vector<Tensor>(const Tensor& grad_out)>;

// True if a result computed from `inputs` must carry gradient; undefined inputs do not count.
inline bool needs_gradient(const std::vector<Tensor>& inputs) {
  if (!c10::GradMode::is_enabled()) return false;
  for (const Tensor& x : inputs)
    if (x.defined() && x.requires_grad()) return true;
  return false;
}

inline Tensor attach_gradient(const Tensor& value, const std::vector<Tensor>& inputs, GradientFunction gradient) {
  if (!needs_gradient(inputs)) return value;
  const auto gradients = std::make_shared<std::vector<Tensor>>();
  // Each input is reached through its dot product with a zero tensor that has no memory: zero in the forward pass, and
  // in the backward pass a zero gradient without memory, in whose place the hook puts the real one.
  Tensor link;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    const Tensor view = inputs[i].view_as(inputs[i]);
    view.register_hook([gradients, i](const Tensor&) { return std::exchange(gradients->at(i), Tensor()); });
    const Tensor flat = view.reshape({-1});
    const Tensor zeros = at::_ops::_efficientzerotensor::call(flat.sym_sizes(), flat.scalar_type(), flat.layout(),
                                                              flat.device(), /*pin_memory=*/std::nullopt);
    // ATen has no dot product on the meta device, where nothing has memory.
    const Tensor zero = (flat.is_meta() ? flat.sum() : flat.dot(zeros)).to(value.scalar_type());
    link = link.defined() ? link.add(zero) : zero;
  }
  Tensor out = value.detach().add(link);
  out.register_hook([gradients, gradient = std::move(gradient)](const Tensor& grad) {
    if (c10::GradMode::is_enabled())
      core::raise("tensor", 4,
                  {.what = "an operation with a hand-written backward has no second derivative",
                   .remedy = "call backward without create_graph"});
    *gradients = gradient(grad);
  });
  return out;
}

}  // namespace rlalgo::tensor
