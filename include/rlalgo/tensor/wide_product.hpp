// Products of narrow numbers whose sums stay wide: bfloat16 (or float16) times the same, added in float32 and left there.
#pragma once

#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_ops.h>

#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

// out ← beta·out + alpha·(a·b): a [m, k], b [k, n], out [m, n], or batches of them [B, …]; a and b of one dtype, which may be narrower
// than that of out. On a GPU narrow operands are multiplied as they are; the CPU has no such product and widens them.
inline void addmm_wide_(Tensor out, const Tensor& a, const Tensor& b, double beta, double alpha = 1.0) {
  const at::ScalarType type = out.scalar_type();
  const bool alike = a.scalar_type() == type, batches = out.dim() == 3;
  if (!alike && (out.is_cpu() || out.is_meta())) return addmm_wide_(out, a.to(type), b.to(type), beta, alpha);
  if (alike && batches)
    out.baddbmm_(a, b, beta, alpha);
  else if (alike)
    addmm_(out, a, b, beta, alpha);
  else if (batches)
    at::_ops::baddbmm_dtype_out::call(out, a, b, type, beta, alpha, out);
  else
    at::_ops::addmm_dtype_out::call(out, a, b, type, beta, alpha, out);
}

}  // namespace rlalgo::tensor
