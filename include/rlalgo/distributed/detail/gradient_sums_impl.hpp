// Definitions of gradient_sums.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/distributed/gradient_sums.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

namespace detail {

// −1: outside of the layers.
inline std::int64_t layer_of(const std::string& parameter) {
  static const std::string mark = "model.layers.";
  const std::size_t found = parameter.find(mark);
  return found == std::string::npos ? -1 : std::stoll(parameter.substr(found + mark.size()));
}

}  // namespace detail

RLALGO_INLINE GradientSums::GradientSums(std::vector<model::Parameter> parameters, std::shared_ptr<Team> team,
                                         std::size_t least)
    : parameters_(std::move(parameters)), team_(std::move(team)) {
  std::map<std::int64_t, std::vector<std::size_t>> layers;
  for (std::size_t i = 0; i < parameters_.size(); ++i) layers[detail::layer_of(parameters_[i].name)].push_back(i);
  std::size_t bytes = least;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    if (bytes >= least || layer->first < 0) {
      buckets_.emplace_back();
      bytes = 0;
    }
    Bucket& bucket = buckets_.back();
    bucket.layer = layer->first;
    for (const std::size_t i : layer->second) {
      bucket.members.push_back(i);
      bytes += parameters_[i].value.nbytes();
    }
  }
}

RLALGO_INLINE void GradientSums::begin_last() {
  if (begun_ > 0) forget();  // of a step that was given up
  last_ = true;
  final_ = false;
  open_ = 0;
}

// Passes without a graph may be another thread's.
RLALGO_INLINE void GradientSums::begin(const Pass& pass) {
  if (!pass.graph || !last_) return;
  if (final_) {  // the backward pass that was the last one failed
    last_ = final_ = false;
  } else if (pass.phase == Phase::forward) {
    ++open_;
  } else {
    final_ = --open_ == 0;
  }
}

RLALGO_INLINE void GradientSums::gradient_ready(std::int64_t layer) {
  if (!final_) return;
  while (begun_ < buckets_.size() && buckets_[begun_].layer >= layer) launch(buckets_[begun_]);
}

RLALGO_INLINE void GradientSums::end(const Pass& /*pass*/) {
  if (final_) last_ = final_ = false;
}

RLALGO_INLINE void GradientSums::launch(Bucket& bucket) {
  const c10::NoGradGuard no_grad;
  std::vector<Tensor> tensors;
  std::vector<float> there;
  bucket.made.clear();
  for (const std::size_t i : bucket.members) {
    Tensor& gradient = parameters_[i].value.mutable_grad();
    bucket.made.push_back(!gradient.defined());
    there.push_back(gradient.defined() ? 1.0F : 0.0F);
    if (!gradient.defined()) gradient = tensor::zeros_like(parameters_[i].value.detach());
    tensors.push_back(gradient);
  }
  bucket.there = tensor::from_values(there, at::TensorOptions().dtype(at::kFloat));
  if (team_->device().is_cpu()) tensors.push_back(bucket.there);
  bucket.pending = team_->begin_sum("sum of gradients", std::move(tensors));
  order_ = team_->order();
  ++begun_;
}

RLALGO_INLINE std::vector<Tensor> GradientSums::finish() {
  last_ = final_ = false;
  if (begun_ > 0 && team_->order() != order_) forget();  // of a step that was given up
  while (begun_ < buckets_.size()) launch(buckets_[begun_]);
  const os::Stopwatch watch;
  // Beside gradients of a GPU, which the host does not wait for.
  if (!team_->device().is_cpu()) {
    std::vector<Tensor> all;
    for (const Bucket& bucket : buckets_) all.push_back(bucket.there);
    team_->begin_sum("who has gradients", std::move(all)).wait();
  }
  for (Bucket& bucket : buckets_) bucket.pending.wait();
  waited_ += watch.seconds();
  begun_ = 0;
  for (Bucket& bucket : buckets_) {
    const float* const there = bucket.there.const_data_ptr<float>();
    for (std::size_t m = 0; m < bucket.members.size(); ++m)
      if (there[m] == 0.0F && bucket.made[m]) parameters_[bucket.members[m]].value.mutable_grad() = Tensor();
  }
  std::vector<Tensor> out;
  for (const model::Parameter& p : parameters_)
    if (p.value.grad().defined()) out.push_back(p.value.grad());
  return out;
}

RLALGO_INLINE void GradientSums::leave() noexcept {
  forget();
  last_ = final_ = false;
  team_ = nullptr;
}

RLALGO_INLINE void GradientSums::forget() noexcept {
  for (Bucket& bucket : buckets_) bucket.pending.forget();
  begun_ = 0;
}

}  // namespace rlalgo::distributed
