// The decoder's operations on a GPU: the project's own kernels where the program has them and tensors fit, ATen's operators
// else. What a kernel computes is what operations.hpp says, and in float32 what ATen computes, to the rounding of sums.
//
// add_rows sums in the order of the rows, without atomics: equal inputs give equal bits.
// attention is one call for all segments, each with the keys of all that it sees: keys that segments share are copied for each, and
// their gradients summed in the order of the segments. Where there is no such call for the tensors (a cap, another dtype or width), or for
// a part of a plan, it goes piece by piece. Before that call one kernel makes what it reads of a joined product of queries, keys and values
// (raw_heads.hpp), and behind its gradient one makes that of the product.
//
// Shapes and dtypes: those of operations.hpp. Errors: those of tensor/cuda_kernels.hpp.
#pragma once

#include <cstdint>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/aten_operations.hpp>
#include <rlalgo/model/layer_spec.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/raw_heads.hpp>
#include <rlalgo/model/rope.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

[[nodiscard]] inline cuda::Activation kernel_activation(Activation act) {
  return act == Activation::silu ? cuda::Activation::silu : cuda::Activation::gelu_tanh;
}

class CudaOperations : public AtenOperations, private RawHeadsAttention {
 public:
  // `kernels` outlive it.
  explicit CudaOperations(const tensor::OwnKernels& kernels = tensor::own_kernels()) : kernels_(&kernels) {}

  RLALGO_INLINE void add_rows(Tensor& gradient, const Tensor& index, const Tensor& grad) const override;

  [[nodiscard]] RLALGO_INLINE RmsNormOutput rms_norm(const Tensor& x, const Tensor& weight,
                                                     const NormSpec& norm) const override;
  [[nodiscard]] RLALGO_INLINE Tensor rms_norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                                       const NormSpec& norm, const Tensor& scale, Tensor grad_x,
                                                       Tensor grad_weight) const override;

  RLALGO_INLINE void rotate(Tensor& x, const RopeTable& table, Rotation rotation) const override;

  RLALGO_INLINE void gated(Activation act, const Tensor& gate, const Tensor& up, const Tensor& out) const override;
  RLALGO_INLINE void gated_backward(Activation act, const Tensor& grad, const Tensor& gate,
                                    const Tensor& up) const override;

  // What AtenOperations needs, and behind it, where attention in one call is there: ends of queries and of keys; and where segments see
  // ancestors the tokens of the keys [K], sorted by token, with the order that sorts them and the place of each token's first one [T + 1].
  [[nodiscard]] RLALGO_INLINE AttentionLayout lay_out(AttentionPlan plan, at::Device device) const override;
  [[nodiscard]] RLALGO_INLINE AttentionOutput attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                        const AttentionLayout& layout) const override;
  [[nodiscard]] RLALGO_INLINE AttentionGradient attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                                   const Tensor& v, const AttentionOutput& out,
                                                                   const AttentionLayout& layout) const override;

  [[nodiscard]] RLALGO_INLINE const RawHeadsAttention* of_raw_heads(const RawHeads& heads,
                                                                    const AttentionLayout& layout) const override;

  [[nodiscard]] RLALGO_INLINE Tensor dropout(const Tensor& x, const DropoutMask& mask) const override;

 protected:
  [[nodiscard]] const tensor::OwnKernels& kernels() const { return *kernels_; }

 private:
  // Keys of every segment with all of its chain, one segment behind the other.
  struct Unrolled {
    const tensor::VarlenAttention* attention = nullptr;  // null: piece by piece
    tensor::VarlenSequences sequences = {};
    Tensor tokens, sorted, order, first;  // [K] ×3, [T + 1]; undefined: keys are the tokens themselves

    [[nodiscard]] Tensor keys(const Tensor& x) const { return tokens.defined() ? x.index_select(0, tokens) : x; }
  };
  [[nodiscard]] Unrolled unrolled(const Tensor& q, const AttentionLayout& layout) const;
  // Rows of k and v [K, …] summed by their tokens.
  [[nodiscard]] std::pair<Tensor, Tensor> summed(const Tensor& k, const Tensor& v, const Unrolled& by,
                                                 std::int64_t tokens) const;

  [[nodiscard]] RLALGO_INLINE AttentionOutput raw_attention(const RawHeads& heads,
                                                            const AttentionLayout& layout) const override;
  [[nodiscard]] RLALGO_INLINE AttentionGradient raw_attention_backward(const Tensor& grad, const RawHeads& heads,
                                                                       const AttentionOutput& out,
                                                                       const AttentionLayout& layout,
                                                                       const Tensor& grad_q_norm,
                                                                       const Tensor& grad_k_norm) const override;

  const tensor::OwnKernels* kernels_;
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/cuda_operations_impl.hpp>
#endif
