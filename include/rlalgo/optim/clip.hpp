// Gradient clipping by global norm.
//
//   n = ‖(g₁, …, g_k)‖₂;   gᵢ ← gᵢ · min(1, max_norm / (n + 1e-6))
//
// The arithmetic of torch.nn.utils.clip_grad_norm_ in the gradients' dtype: the norm of the norms, the coefficient
// clamped to 1. The norms of bfloat16 and float16 gradients are float32 (there: bfloat16, good to 0.4 %). Returns n,
// the norm before clipping; max_norm 0 = measure only. A norm that is not finite is returned and nothing is scaled: the
// caller decides.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim {

using tensor::Tensor;

[[nodiscard]] inline c10::ScalarType norm_type(const Tensor& gradient) {
  const c10::ScalarType type = gradient.scalar_type();
  return type == c10::ScalarType::BFloat16 || type == c10::ScalarType::Half ? c10::ScalarType::Float : type;
}

inline double clip_grad_norm(std::span<Tensor> gradients, double max_norm) {
  if (gradients.empty()) return 0.0;
  const c10::NoGradGuard no_grad;
  auto dtype = c10::ScalarType::Undefined;
  for (const Tensor& g : gradients) {
    const c10::ScalarType own = norm_type(g);
    dtype = dtype == c10::ScalarType::Undefined ? own : c10::promoteTypes(dtype, own);
  }
  std::vector<Tensor> norms;
  norms.reserve(gradients.size());
  for (const Tensor& g : gradients) norms.push_back(tensor::euclidean_norm(g, norm_type(g)).to(dtype));
  const Tensor total = tensor::stack(norms).norm();  // []
  const double norm = total.item<double>();
  if (max_norm <= 0 || !std::isfinite(norm)) return norm;
  const Tensor coefficient = total.add(1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0);
  if (coefficient.item<double>() < 1.0)
    for (Tensor& g : gradients) g.mul_(coefficient);
  return norm;
}

}  // namespace rlalgo::optim
