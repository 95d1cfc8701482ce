// A second stream of a GPU, next to the one that everything else is launched on: for copies that run while the device computes, and for what is
// recorded, which must not be on that one.
//
// Within a Scope LibTorch launches on it, after what was launched before; what is launched behind the Scope comes after what it launched.
// A device without streams of its own computes in order, and a Scope does nothing.
#pragma once

#include <optional>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace rlalgo::tensor {

class SideStream {
 public:
  explicit SideStream(c10::Device device) : device_(device) {}

  // A cudaStream_t; null on a device without streams.
  [[nodiscard]] void* handle() const { return stream_ ? stream_->native_handle() : nullptr; }

  class Scope {
   public:
    explicit Scope(SideStream& side) : side_(side) {
      if (!side.device_.is_cuda()) return;
      const c10::impl::VirtualGuardImpl guard(side.device_.type());
      if (!side.stream_) side.stream_ = guard.getStreamFromGlobalPool(side.device_);
      before_ = guard.getStream(side.device_);
      order(*before_, *side.stream_);
      guard.exchangeStream(*side.stream_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() {
      if (!before_) return;
      c10::impl::VirtualGuardImpl(side_.device_.type()).exchangeStream(*before_);
      order(*side_.stream_, *before_);
    }

   private:
    SideStream& side_;
    std::optional<c10::Stream> before_;
  };

  // f() on this stream, after what was launched so far; what is launched later does not wait for it. Gives the event behind it; nothing
  // on a device without streams.
  template <class F>
  std::optional<c10::Event> launch(F&& f) {
    if (!device_.is_cuda()) {
      f();
      return std::nullopt;
    }
    const c10::impl::VirtualGuardImpl guard(device_.type());
    if (!stream_) stream_ = guard.getStreamFromGlobalPool(device_);
    const c10::Stream before = guard.getStream(device_);
    order(before, *stream_);
    guard.exchangeStream(*stream_);
    try {
      f();
    } catch (...) {
      guard.exchangeStream(before);
      throw;
    }
    guard.exchangeStream(before);
    std::optional<c10::Event> done(device_.type());
    done->record(*stream_);
    return done;
  }
  // What is launched from now on comes after the event.
  static void wait_for(const c10::Event& event, c10::Device device) {
    event.block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  [[nodiscard]] const std::optional<c10::Stream>& stream() const { return stream_; }

 private:
  static void order(const c10::Stream& first, const c10::Stream& then) {
    c10::Event event(first.device_type());
    event.record(first);
    event.block(then);
  }

  c10::Device device_;
  std::optional<c10::Stream> stream_;
};

}  // namespace rlalgo::tensor
