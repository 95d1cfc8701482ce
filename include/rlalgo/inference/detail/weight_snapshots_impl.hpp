// Definitions of weight_snapshots.hpp.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/weight_snapshots.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/large_pages.hpp>

namespace rlalgo::inference {

RLALGO_INLINE void WeightSnapshots::publish(std::int64_t version) {
  const int target = begin_writing(version);
  try {
    copy(state_->buffers[target], version);
  } catch (...) {
    end_writing(target, false);
    throw;
  }
  end_writing(target, true);
}

RLALGO_INLINE WeightSnapshots::Handle WeightSnapshots::acquire() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.current < 0 || state.writing != state.current; });
  if (state.current < 0)
    core::raise("inference", 14,
                {.what = "no weights have been published to generate with",
                 .remedy = "publish once before the first generation"});
  Buffer& buffer = state.buffers[state.current];
  ++buffer.readers;
  return {&buffer.snapshot, [state = state_, &buffer](const Snapshot*) {
            const std::lock_guard guard(state->mutex);
            --buffer.readers;
            state->changed.notify_all();
          }};
}

RLALGO_INLINE int WeightSnapshots::begin_writing(std::int64_t version) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  int target = -1;
  const auto found = [&] {
    const int other = state.current < 0 ? 0 : 1 - state.current;
    target = state.buffers[other].readers == 0                                 ? other
             : state.current >= 0 && state.buffers[state.current].readers == 0 ? state.current
                                                                               : -1;
    return target >= 0;
  };
  if (!state.changed.wait_for(lock, std::chrono::duration<double>(seconds_), found))
    core::raise("inference", 13,
                {.what = "weights cannot be published: both copies are being generated with",
                 .found = "version " + std::to_string(version) + " waited for " + std::to_string(seconds_) + " s",
                 .expected = "a generation of at most two versions at a time",
                 .remedy = "let generations end, or publish less often"});
  state.writing = target;
  return target;
}

RLALGO_INLINE void WeightSnapshots::end_writing(int target, bool good) {
  State& state = *state_;
  const std::lock_guard guard(state.mutex);
  state.writing = -1;
  if (good)
    state.current = target;
  else if (state.current == target)
    state.current = -1;
  state.changed.notify_all();
}

RLALGO_INLINE void WeightSnapshots::copy(Buffer& buffer, std::int64_t version) {
  const c10::NoGradGuard no_grad;
  buffer.snapshot.weights = live_;
  copied_bytes_ = 0;
  if (each_) {
    fetch(buffer);
    buffer.snapshot.version = version;
    buffer.snapshot.number = ++publications_;
    return;
  }
  std::optional<tensor::LargePages> pages = buffer.own.empty() ? room_for_copies() : std::nullopt;
  std::size_t next = 0;
  visit(buffer.snapshot.weights, [&](tensor::Tensor& value) {
    if (!value.defined() || !value.requires_grad()) return;
    if (next == buffer.own.size()) buffer.own.emplace_back();
    tensor::Tensor& own = buffer.own[next++];
    const tensor::Tensor source = value.detach();
    if (!own.defined() && pages) own = pages->take(source.sizes(), source.scalar_type());
    if (!own.defined() || own.sizes() != source.sizes() || own.scalar_type() != source.scalar_type())
      own = source.clone();
    else
      own.copy_(source);
    copied_bytes_ += own.nbytes();
    value = own;
  });
  buffer.own.resize(next);
  buffer.snapshot.version = version;
  buffer.snapshot.number = ++publications_;
}

RLALGO_INLINE std::optional<tensor::LargePages> WeightSnapshots::room_for_copies() {
  std::size_t bytes = 0;
  bool here = true;
  model::DecoderWeights weights = live_;
  visit(weights, [&](const tensor::Tensor& value) {
    if (!value.defined() || !value.requires_grad()) return;
    bytes += tensor::LargePages::bytes_of(value.sizes(), value.scalar_type());
    here = here && value.device().is_cpu();
  });
  if (!here) return std::nullopt;
  return tensor::LargePages(bytes);
}

RLALGO_INLINE void WeightSnapshots::fetch(Buffer& buffer) {
  std::map<const void*, tensor::Tensor> wanted;  // by the memory of the trainer's tensor
  std::size_t trained = 0, frozen = 0;
  visit(buffer.snapshot.weights, [&](tensor::Tensor& value) {
    if (!value.defined()) return;
    std::vector<tensor::Tensor>& copies = value.requires_grad() ? buffer.own : frozen_;
    std::size_t& next = value.requires_grad() ? trained : frozen;
    const bool fresh = next == copies.size();
    if (fresh) copies.push_back(tensor::empty(value.sizes(), value.options()));
    if (fresh || value.requires_grad()) wanted.emplace(memory_of(value), copies[next]);
    value = copies[next++];
  });
  std::size_t found = 0;
  each_([&](const tensor::Tensor& weight) {
    const auto one = wanted.find(memory_of(weight));
    if (one == wanted.end()) return;
    one->second.copy_(weight.detach().view(one->second.sizes()));
    copied_bytes_ += one->second.nbytes();
    ++found;
  });
  if (found != wanted.size())
    core::raise("inference", 17,
                {.what = "weights to generate with are not among those that can be fetched",
                 .found = std::to_string(found) + " tensors",
                 .expected = std::to_string(wanted.size())});
}

}  // namespace rlalgo::inference
