// Attention over a token tree as a differentiable function, for callers outside the decoder: every token sees its
// ancestors' tokens and its own segment up to itself.
//
//   o_t = Σ_{j visible to t} softmax_j(q_t·k_j/√D) v_j
//
// Shapes: q [T, n, D], k and v [T, kv, D]; o [T, n, D]. Grouped queries: head h reads key/value head h / (n/kv).
#pragma once

#include <cstdint>

#include <c10/core/GradMode.h>

#include <rlalgo/model/attention_plan.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/operations_for.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/tensor/custom_gradient.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

// `window` 0: none. `operations` must live until the backward pass.
[[nodiscard]] Tensor attention(const Operations& operations, const Tensor& q, const Tensor& k, const Tensor& v,
                               const TokenTree& tree, std::int64_t window = 0);

[[nodiscard]] Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const TokenTree& tree,
                               std::int64_t window = 0);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/attention_impl.hpp>
#endif
