// Products of narrow numbers whose sums stay wide: bfloat16 (or float16) times the same, added in float32 and left there.
#pragma once

#include <ATen/ops/addmm_ops.h>

#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor::detail {

// out ← beta·out + alpha·(a·b), out in float32, a and b of one dtype. On a GPU narrow operands are multiplied as they are; the CPU
// has no such product and widens them.
inline void addmm_wide_(Tensor out, const Tensor& a, const Tensor& b, double beta, double alpha = 1.0) {
  if (a.scalar_type() == out.scalar_type())
    addmm_(out, a, b, beta, alpha);
  else if (out.is_cpu())
    addmm_(out, a.to(out.scalar_type()), b.to(out.scalar_type()), beta, alpha);
  else
    at::_ops::addmm_dtype_out::call(out, a, b, out.scalar_type(), beta, alpha, out);
}

}  // namespace rlalgo::tensor::detail
