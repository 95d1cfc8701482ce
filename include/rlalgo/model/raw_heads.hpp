// Attention over queries, keys and values as their maps give them: norms per head and rotation are part of it.
//
//   q̂_h = rotate(norm(q_h; w_q)),   k̂_h = rotate(norm(k_h; w_k)),   o, ℓ = attention(q̂, k̂, v)
//
// The numbers are those of the operations one by one (operations.hpp): what is normalised is rounded to the dtype before it is rotated. The
// gradient rounds less: sums over keys that segments share, the rotation and the norm follow each other in float32.
// Shapes: q [T, n·D], k and v [T, kv·D], rows may lie apart, as those of one product do; w [D]. Their gradients are columns of one
// [T, (n + 2kv)·D]. Nothing that the backward pass reads is kept but these and the output.
#pragma once

#include <cstdint>

#include <rlalgo/model/layer_spec.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/rope.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

struct RawHeads {
  Tensor q, k, v;
  std::int64_t head_dim = 0;        // D
  Tensor q_norm = {}, k_norm = {};  // of a norm of each head by itself; undefined: there is none
  NormSpec norm = {};
  const RopeTable* rope = nullptr;  // null: nothing is rotated
};

class RawHeadsAttention {
 public:
  RawHeadsAttention() = default;
  RawHeadsAttention(const RawHeadsAttention&) = delete;
  RawHeadsAttention& operator=(const RawHeadsAttention&) = delete;
  virtual ~RawHeadsAttention() = default;

  [[nodiscard]] virtual AttentionOutput raw_attention(const RawHeads& heads, const AttentionLayout& layout) const = 0;
  // Of `grad` [T, n, D]; the gradients of the norms are added to what is defined of the last two.
  [[nodiscard]] virtual AttentionGradient raw_attention_backward(const Tensor& grad, const RawHeads& heads,
                                                                 const AttentionOutput& out,
                                                                 const AttentionLayout& layout,
                                                                 const Tensor& grad_q_norm,
                                                                 const Tensor& grad_k_norm) const = 0;
};

}  // namespace rlalgo::model
