// When a device has done what a thread gave it. A GPU works while the CPU goes on, on streams; each thread has a current one for each
// device (c10's, as ATen's kernels use it). The CPU works at once: nothing to wait for, and so with a device that no library
// in this process serves.
#pragma once

#include <memory>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::tensor {

namespace detail {

inline bool has_streams(at::Device device) { return !device.is_cpu() && c10::impl::hasDeviceGuardImpl(device.type()); }

}  // namespace detail

// Returns when the calling thread's current stream is done. Other streams are not waited for: one may hold an operation that
// ends only after this thread has begun the next.
inline void finish_stream(at::Device device) {
  if (detail::has_streams(device)) c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

// The place that the calling thread's current stream has come to: what it has been given so far, and nothing that follows.
class StreamMark {
 public:
  explicit StreamMark(at::Device device) {
    if (!detail::has_streams(device)) return;
    event_ = std::make_shared<c10::Event>(device.type());
    event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  // Returns when that is done; from any thread.
  void finish() const {
    if (event_ != nullptr) event_->synchronize();
  }

 private:
  std::shared_ptr<c10::Event> event_;
};

}  // namespace rlalgo::tensor
