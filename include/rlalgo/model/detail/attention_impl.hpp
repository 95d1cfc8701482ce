// Definitions of attention.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/attention.hpp>
#include <rlalgo/model/attention_plan.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/operations_for.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/tensor/custom_gradient.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

RLALGO_INLINE Tensor attention(const Operations& operations, const Tensor& q, const Tensor& k, const Tensor& v,
                               const TokenTree& tree, std::int64_t window) {
  struct Saved {
    AttentionLayout layout;
    Tensor q, k, v;
    AttentionOutput out;
  };
  const auto saved = std::make_shared<Saved>();
  saved->layout = operations.lay_out(plan_attention(tree, window), q.device());
  {
    const c10::NoGradGuard no_grad;
    saved->q = q.detach().contiguous();
    saved->k = k.detach().contiguous();
    saved->v = v.detach().contiguous();
    saved->out = operations.attention(saved->q, saved->k, saved->v, saved->layout);
  }
  return tensor::attach_gradient(saved->out.value, {q, k, v}, [saved, &operations](const Tensor& grad) {
    const c10::NoGradGuard no_grad;
    const AttentionGradient g =
        operations.attention_backward(grad.contiguous(), saved->q, saved->k, saved->v, saved->out, saved->layout);
    return std::vector<Tensor>{g.q, g.k, g.v};
  });
}

RLALGO_INLINE Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const TokenTree& tree,
                               std::int64_t window) {
  return attention(operations_for(q.device()), q, k, v, tree, window);
}

}  // namespace rlalgo::model
