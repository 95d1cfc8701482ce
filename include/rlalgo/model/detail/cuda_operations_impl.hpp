// Definitions of cuda_operations.hpp.
#pragma once

#include <cstdint>
#include <tuple>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/model/cuda_operations.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

RLALGO_INLINE void CudaOperations::add_rows(Tensor& gradient, const Tensor& index, const Tensor& grad) const {
  const cuda::Kernels* const own = kernels().take(cuda::Kernel::segment_sum, gradient, grad);
  if (own == nullptr || index.scalar_type() != at::kLong) return AtenOperations::add_rows(gradient, index, grad);
  const auto [segment, order] = index.sort(/*stable=*/true, 0, /*descending=*/false);
  tensor::launch(*own, own->segment_sum,
                 {.x = grad.const_data_ptr(),
                  .order = order.const_data_ptr<std::int64_t>(),
                  .segment = segment.const_data_ptr<std::int64_t>(),
                  .out = gradient.mutable_data_ptr(),
                  .places = index.size(0),
                  .width = gradient.size(0) == 0 ? 0 : gradient.numel() / gradient.size(0),
                  .element = tensor::element_of(gradient)},
                 cuda::Kernel::segment_sum, gradient);
}

RLALGO_INLINE RmsNormOutput CudaOperations::rms_norm(const Tensor& x, const Tensor& weight,
                                                     const NormSpec& norm) const {
  const cuda::Kernels* const own = norm.centred ? nullptr : kernels().take(cuda::Kernel::rms_norm, x, weight);
  if (own == nullptr) return AtenOperations::rms_norm(x, weight, norm);
  const std::int64_t width = weight.size(0), rows = width == 0 ? 0 : x.numel() / width;
  RmsNormOutput out{tensor::empty_like(x), tensor::empty({rows}, x.options().dtype(at::kFloat))};
  tensor::launch(*own, own->rms_norm,
                 {.x = const_cast<void*>(x.const_data_ptr()),  // written to only with a residual
                  .weight = weight.const_data_ptr(),
                  .y = out.value.mutable_data_ptr(),
                  .scale = out.scale.mutable_data_ptr<float>(),
                  .rows = rows,
                  .width = width,
                  .epsilon = static_cast<float>(norm.epsilon),
                  .one_more = norm.unit_offset,
                  .once = norm.rounded_once,
                  .element = tensor::element_of(x)},
                 cuda::Kernel::rms_norm, x);
  return out;
}

RLALGO_INLINE Tensor CudaOperations::rms_norm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& weight,
                                                       const NormSpec& norm, const Tensor& scale, Tensor grad_x,
                                                       Tensor grad_weight) const {
  const cuda::Kernels* const own =
      norm.centred ? nullptr : kernels().take(cuda::Kernel::rms_norm, x, grad_y, weight, grad_x, grad_weight);
  if (own == nullptr || scale.scalar_type() != at::kFloat || !scale.is_contiguous())
    return AtenOperations::rms_norm_backward(grad_y, x, weight, norm, scale, grad_x, grad_weight);
  const std::int64_t width = weight.size(0), rows = width == 0 ? 0 : x.numel() / width;
  const bool add = grad_x.defined();
  if (!add) grad_x = tensor::empty_like(x);
  Tensor partial;  // [chunks, H]
  if (grad_weight.defined())
    partial = tensor::empty({cuda::rms_norm_chunks(rows), width}, x.options().dtype(at::kFloat));
  tensor::launch(*own, own->rms_norm_gradient,
                 {.grad_y = grad_y.const_data_ptr(),
                  .x = x.const_data_ptr(),
                  .weight = weight.const_data_ptr(),
                  .scale = scale.const_data_ptr<float>(),
                  .grad_x = grad_x.mutable_data_ptr(),
                  .grad_weight = grad_weight.defined() ? grad_weight.mutable_data_ptr() : nullptr,
                  .partial = partial.defined() ? partial.mutable_data_ptr<float>() : nullptr,
                  .rows = rows,
                  .width = width,
                  .one_more = norm.unit_offset,
                  .add = add,
                  .element = tensor::element_of(x)},
                 cuda::Kernel::rms_norm, x);
  return grad_x;
}

RLALGO_INLINE void CudaOperations::rotate(Tensor& x, const RopeTable& table, Rotation rotation) const {
  const cuda::Kernels* const own = kernels().take(cuda::Kernel::rotate, x);
  if (own == nullptr || kernels().take(cuda::Kernel::rotate, table.cosine, table.sine) == nullptr ||
      table.cosine.scalar_type() != at::kFloat)
    return AtenOperations::rotate(x, table, rotation);
  const std::int64_t tokens = table.cosine.size(0), half = table.cosine.size(1), width = x.size(-1);
  tensor::launch(*own, own->rotate,
                 {.x = x.mutable_data_ptr(),
                  .cosine = table.cosine.const_data_ptr<float>(),
                  .sine = table.sine.const_data_ptr<float>(),
                  .tokens = tokens,
                  .heads = tokens * width == 0 ? 0 : x.numel() / (tokens * width),
                  .half = half,
                  .width = width,
                  .backward = rotation == Rotation::backward,
                  .interleaved = table.interleaved,
                  .element = tensor::element_of(x)},
                 cuda::Kernel::rotate, x);
}

RLALGO_INLINE void CudaOperations::gated(Activation act, const Tensor& gate, const Tensor& up,
                                         const Tensor& out) const {
  const cuda::Kernels* const own = kernels().take(cuda::Kernel::gated, gate, up, out);
  if (own == nullptr) return AtenOperations::gated(act, gate, up, out);
  tensor::launch(*own, own->gated,
                 {.gate = gate.const_data_ptr(),
                  .up = up.const_data_ptr(),
                  .out = out.mutable_data_ptr(),
                  .count = gate.numel(),
                  .activation = kernel_activation(act),
                  .element = tensor::element_of(gate)},
                 cuda::Kernel::gated, gate);
}

RLALGO_INLINE void CudaOperations::gated_backward(Activation act, const Tensor& grad, const Tensor& gate,
                                                  const Tensor& up) const {
  const cuda::Kernels* const own = kernels().take(cuda::Kernel::gated, gate, up, grad);
  if (own == nullptr) return AtenOperations::gated_backward(act, grad, gate, up);
  tensor::launch(*own, own->gated_gradient,
                 {.grad = grad.const_data_ptr(),
                  .gate = gate.mutable_data_ptr(),
                  .up = up.mutable_data_ptr(),
                  .count = gate.numel(),
                  .activation = kernel_activation(act),
                  .element = tensor::element_of(gate)},
                 cuda::Kernel::gated, gate);
}

}  // namespace rlalgo::model
