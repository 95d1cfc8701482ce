// Updates on a device other than the CPU: what optimizers share that take the clip from there (device_clip.hpp).
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/optim/master_weight.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim::detail {

// Whether all parameters of entries (with a model::Parameter `parameter`) lie on one device that is not the CPU, and there is one.
template <class Entry>
[[nodiscard]] bool on_one_device(const std::vector<Entry>& entries) {
  return !entries.empty() && std::all_of(entries.begin(), entries.end(), [&](const Entry& e) {
    const at::Device device = e.parameter.value.device();
    return !device.is_cpu() && device == entries.front().parameter.value.device();
  });
}

// The gradient in the master's precision, divided by what clips it; `clip` may be null.
[[nodiscard]] inline Tensor clipped_gradient(const MasterWeight& weight, const DeviceClip* clip) {
  const Tensor gradient = weight.gradient();
  return clip != nullptr && clip->divisor.defined() ? gradient.div(clip->divisor) : gradient;
}

// The same with the decay as part of it, g + λp.
template <class Entry>
[[nodiscard]] Tensor decayed_gradient(const Entry& e, double weight_decay, const DeviceClip* clip) {
  const Tensor g = clipped_gradient(e.weight, clip);
  return e.parameter.weight_decay && weight_decay != 0.0 ? g.add(e.weight.master(), weight_decay) : g;
}

// Tensors that an update changes in place, and that are to be as they were where clip.skip is 1.
class SkippedUpdate {
 public:
  SkippedUpdate(const DeviceClip* clip, const std::vector<Tensor>& changed) : clip_(clip) {
    if (clip_ == nullptr) return;
    for (const Tensor& one : changed)
      if (one.defined()) kept_.emplace_back(one, one.clone());
  }
  // After the update.
  void settle() const {
    if (kept_.empty()) return;
    const Tensor skipped = clip_->skip.ne(0);
    for (const auto& [changed, before] : kept_) changed.copy_(tensor::where(skipped, before, changed));
  }

 private:
  const DeviceClip* clip_;
  std::vector<std::pair<Tensor, Tensor>> kept_;  // what is changed, and what it was
};

}  // namespace rlalgo::optim::detail
