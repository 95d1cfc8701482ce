// The decoder's operations on the CPU: loops over the tensors' memory, and ATen's blocked attention.
//
// Shapes and dtypes: those of operations.hpp; float32, float64, bfloat16.
// Errors: [rlalgo.model.15] another dtype.
#pragma once

#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/philox.hpp>
#include <rlalgo/model/detail/cpu_attention.hpp>
#include <rlalgo/model/detail/cpu_rms_norm.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

class CpuOperations : public Operations {
 public:
  [[nodiscard]] Tensor rows(const Tensor& x, const Tensor& index) const override { return x.index_select(0, index); }

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

  [[nodiscard]] AttentionLayout lay_out(AttentionPlan plan, at::Device) const override { return {std::move(plan)}; }

  [[nodiscard]] RLALGO_INLINE AttentionOutput attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                        const AttentionLayout& layout) const override;

  [[nodiscard]] RLALGO_INLINE AttentionGradient attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                                   const Tensor& v, const AttentionOutput& out,
                                                                   const AttentionLayout& layout) const override;

  RLALGO_INLINE void attend_further(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionLayout& layout,
                                    AttentionOutput& out) const override;

  RLALGO_INLINE void attend_further_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                             const AttentionOutput& out, const AttentionLayout& layout,
                                             AttentionGradient& sum) const override;

  [[nodiscard]] RLALGO_INLINE Tensor dropout(const Tensor& x, const DropoutMask& mask) const override;
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/cpu_operations_impl.hpp>
#endif
