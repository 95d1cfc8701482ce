// The decoder's operations on a GPU: the project's own kernels where the program has them and tensors fit, ATen's operators
// else. What a kernel computes is what operations.hpp says, and in float32 what ATen computes, to the rounding of sums.
//
// add_rows sums in the order of the rows, without atomics: equal inputs give equal bits.
//
// Shapes and dtypes: those of operations.hpp. Errors: those of tensor/cuda_kernels.hpp.
#pragma once

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/aten_operations.hpp>
#include <rlalgo/model/layer_spec.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/rope.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

[[nodiscard]] inline cuda::Activation kernel_activation(Activation act) {
  return act == Activation::silu ? cuda::Activation::silu : cuda::Activation::gelu_tanh;
}

class CudaOperations : public AtenOperations {
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

 protected:
  [[nodiscard]] const tensor::OwnKernels& kernels() const { return *kernels_; }

 private:
  const tensor::OwnKernels* kernels_;
};

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/cuda_operations_impl.hpp>
#endif
