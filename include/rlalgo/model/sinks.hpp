// Attention sinks: every head has one more score, which no key stands for and whose value is zero.
//
//   o_t = Σ_j e^{s_tj} v_j / (Σ_j e^{s_tj} + e^z)     of what attention gives without:  o ← o·σ(ℓ − z),   ℓ ← log(e^ℓ + e^z)
//   ∂z = −Σ_t e^{z − ℓ_t}·(∂o_t·o_t);   the gradients of q, k and v are those of attention with that o and that ℓ
//
// Source: gpt-oss, arXiv 2508.10925, section 2; Xiao et al., arXiv 2309.17453, section 3.3. Symbols: s_tj the scaled score of
// query t and key j, ℓ_t = log Σ_j e^{s_tj}, z the head's sink, σ the logistic function.
// Shapes: o [T, n, D], ℓ [T, n], z [n]. Computed in the dtype of ℓ; o is rounded to its own.
#pragma once

#include <rlalgo/model/operations.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

[[nodiscard]] inline AttentionOutput with_sinks(const AttentionOutput& out, const Tensor& sinks) {
  const Tensor z = sinks.detach().to(out.log_sum.scalar_type()).unsqueeze(0);
  const Tensor share = out.log_sum.sub(z).sigmoid_();  // [T, n]
  return {out.value.mul(share.unsqueeze(2)).to(out.value.scalar_type()), out.log_sum.logaddexp(z)};
}

// Adds ∂z to `gradient` [n]; `grad` [T, n, D] is ∂o, and `out` what with_sinks() gave.
inline void add_sink_gradient(const Tensor& gradient, const Tensor& grad, const AttentionOutput& out,
                              const Tensor& sinks) {
  const at::ScalarType type = out.log_sum.scalar_type();
  const Tensor along = grad.to(type).mul(out.value).sum(-1);  // [T, n]
  gradient.sub_(sinks.detach().to(type).unsqueeze(0).sub(out.log_sum).exp_().mul_(along).sum(0));
}

}  // namespace rlalgo::model
