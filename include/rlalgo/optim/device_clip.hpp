// Clipping by global norm of gradients that lie on a device, without the host: what an update divides them by, and whether it is to leave
// everything as it is.
//
//   n = ‖(‖g₁‖, …, ‖g_k‖)‖₂;   divisor = max(1, (n + 1e-6) / max_norm);   skip = 1 where n or a loss is not finite, else 0
//
// clip.hpp multiplies by a coefficient where this divides by the inverse of it, so an update
// differs by a rounding. The optimizer applies both (Optimizer::step(rate, clip)); the host reads the norm whenever it likes.
#pragma once

#include <map>
#include <span>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/optim/clip.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

// Needs the tensor type before it.
#include <ATen/ops/_foreach_norm_ops.h>

namespace rlalgo::optim {

struct DeviceClip {
  Tensor norm;          // [] before clipping
  Tensor divisor = {};  // [] float32, at least 1; undefined: nothing is clipped
  Tensor skip = {};     // [] float32, 0 or 1
};

// Of gradients whose norm [] is known on the device; max_norm 0: measure only. `losses`: numbers there that must be finite, too. Where
// ranks clip together every one of them has the same norm; a loss that is not finite makes its gradient so, and with it the norm of all.
[[nodiscard]] inline DeviceClip device_clip_of(const Tensor& norm, double max_norm,
                                               std::span<const Tensor> losses = {}) {
  const c10::NoGradGuard no_grad;
  DeviceClip clip{norm};
  if (max_norm > 0.0) clip.divisor = norm.add(1e-6).div_(max_norm).clamp_min_(1.0).to(c10::ScalarType::Float);
  std::vector<Tensor> finite = {norm};
  for (const Tensor& loss : losses) finite.push_back(loss.detach().reshape({}).to(norm.scalar_type()));
  const Tensor all = tensor::stack(finite);
  clip.skip = all.sub(all).sum().ne(0).to(c10::ScalarType::Float);  // x − x is 0, or NaN where x is not finite
  return clip;
}

// The same of `gradients` (at least one) on one device.
[[nodiscard]] inline DeviceClip device_clip(std::span<const Tensor> gradients, double max_norm,
                                            std::span<const Tensor> losses = {}) {
  const c10::NoGradGuard no_grad;
  std::map<c10::ScalarType, std::vector<Tensor>> lists;  // one call each
  auto dtype = c10::ScalarType::Undefined;
  for (const Tensor& g : gradients) {
    lists[g.scalar_type()].push_back(g.detach());
    dtype = dtype == c10::ScalarType::Undefined ? norm_type(g) : c10::promoteTypes(dtype, norm_type(g));
  }
  std::vector<Tensor> norms;
  for (const auto& [type, list] : lists)
    for (const Tensor& norm : at::_ops::_foreach_norm_Scalar::call(list, 2, norm_type(list.front())))
      norms.push_back(norm.to(dtype));
  return device_clip_of(tensor::stack(norms).norm(), max_norm, losses);
}

}  // namespace rlalgo::optim
