// When a device has done what a thread gave it. A GPU works while the CPU goes on, on streams; each thread has a current one for each
// device (c10's, as ATen's kernels use it). The CPU works at once: nothing to wait for, and so with a device that no library
// in this process serves.
#pragma once

#include <memory>
#include <optional>

#include <c10/core/Device.h>
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
  // `timed`: the time between two of them can be asked for.
  explicit StreamMark(at::Device device, bool timed = false) {
    if (!detail::has_streams(device)) return;
    event_ = std::make_shared<c10::Event>(device.type(),
                                          timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
    event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  // Returns when that is done; from any thread.
  void finish() const {
    if (event_ != nullptr) event_->synchronize();
  }
  // Whether it is; waits for nothing.
  [[nodiscard]] bool reached() const { return event_ == nullptr || event_->query(); }
  // What the calling thread's current stream is given from now on comes after it; the host does not wait.
  void precede(at::Device device) const {
    if (event_ != nullptr) event_->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  // Of two that are timed and reached.
  [[nodiscard]] double seconds_to(const StreamMark& later) const {
    return event_ == nullptr || later.event_ == nullptr ? 0.0 : event_->elapsedTime(*later.event_) * 1e-3;
  }

 private:
  std::shared_ptr<c10::Event> event_;
};

// A stream next to those that LibTorch launches on: while this lives, it is the calling thread's current one. `urgent`: the device's
// scheduler prefers it.
class OwnStream {
 public:
  explicit OwnStream(at::Device device, bool urgent = true) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    device_ = guard.exchangeDevice(device);
    stream_ = guard.getStreamFromGlobalPool(device, urgent);
    before_ = guard.exchangeStream(*stream_);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() {
    const c10::impl::VirtualGuardImpl guard(stream_->device_type());
    guard.exchangeStream(*before_);
    guard.uncheckedSetDevice(*device_);
  }
  [[nodiscard]] void* handle() const { return stream_->native_handle(); }  // a cudaStream_t

 private:
  std::optional<c10::Device> device_;
  std::optional<c10::Stream> stream_, before_;
};

}  // namespace rlalgo::tensor
