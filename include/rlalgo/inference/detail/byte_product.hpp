// Products with a matrix in bytes (quantised_copies.hpp) by the project's own kernel.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/inference/quantised_copies.hpp>
#include <rlalgo/model/quantised_weight.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

// Whether the kernel multiplies x in bfloat16 by such a matrix.
[[nodiscard]] inline bool multiplies_bytes(const tensor::OwnKernels& kernels, const model::QuantisedWeight& w) {
  return kernels.table != nullptr && cuda::in_use(cuda::Kernel::product_8bit) && w.compute() == at::kBFloat16 &&
         w.scales().dim() == 2 && w.codes().device().type() == kernels.device;
}

// out ← x Ŵᵀ, or out + x Ŵᵀ; x [rows, columns of Ŵ], out [rows, rows of Ŵ], both contiguous.
inline void multiply_bytes(const cuda::Kernels& own, const tensor::Tensor& x, const model::QuantisedWeight& w,
                           const tensor::Tensor& out, bool add = false) {
  tensor::launch(own, own.product_8bit,
                 {.x = x.const_data_ptr(),
                  .codes = static_cast<const std::uint8_t*>(w.codes().const_data_ptr()),
                  .scales = w.scales().const_data_ptr<float>(),
                  .y = out.mutable_data_ptr(),
                  .rows = x.size(0),
                  .inner = w.columns(),
                  .columns = w.rows(),
                  .add = add,
                  .code = w.codes().scalar_type() == at::kChar ? cuda::Code8bit::int8 : cuda::Code8bit::e4m3},
                 cuda::Kernel::product_8bit, x);
}

}  // namespace rlalgo::inference::detail
