// The kernel of product_tiles.hpp for bfloat16 that products.hpp takes here.
#pragma once

#include <rlalgo/cpu/features.hpp>
#include <rlalgo/cpu/products.hpp>
#include <rlalgo/tensor/products.hpp>

namespace rlalgo::tensor::detail {

// Whether there is one, and the lanes for what lies between its products.
[[nodiscard]] inline bool has_bfloat16_kernel() {
  return cpu::has_lanes() && product_kernels(at::kBFloat16) != ProductKernels::libtorch;
}

#if defined(__x86_64__)

// f(kernel), where there is one.
template <class F>
void with_bfloat16_kernel(const F& f) {
  if (product_kernels(at::kBFloat16) == ProductKernels::amx) return f(cpu::amx::Bfloat16());
  f(cpu::avx512::Bfloat16());
}

#endif

}  // namespace rlalgo::tensor::detail
