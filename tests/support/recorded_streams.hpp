// A device type without a device, whose streams do nothing: what is asked of them is written down. c10 keeps it until the
// process ends.
#pragma once

#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace rlalgo::support {

class RecordedStreams final : public c10::impl::DeviceGuardImplInterface {
 public:
  struct Call {
    std::string what;
    std::thread::id thread;
  };
  explicit RecordedStreams(c10::DeviceType type) : type_(type) {}

  static RecordedStreams& of(c10::DeviceType type) {
    static RecordedStreams* const made = [&] {
      auto* const one = new RecordedStreams(type);
      const c10::impl::DeviceGuardImplRegistrar known(type, one);
      return one;
    }();
    return *made;
  }
  // What was asked for, since the last time.
  std::vector<Call> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(calls_, {});
  }

  c10::DeviceType type() const override { return type_; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {type_, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, getDevice()); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    note(stream.id() == 7 ? "go to a stream of the pool" : "go back");
    return getStream(getDevice());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, getDevice(), 7);
  }
  void* getStreamNativeHandle(c10::Stream stream) const override { return stream.id() == 7 ? &mutex_ : nullptr; }
  void block(void* event, const c10::Stream&) const override {
    note(event == &mutex_ ? "come behind the mark" : "another event");
  }
  bool queryEvent(void* event) const override { return event != &mutex_; }
  double elapsedTime(void*, void*, c10::DeviceIndex) const override { return 2500.0; }
  c10::DeviceIndex deviceCount() const noexcept override { return 0; }
  void record(void** event, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {
    *event = &mutex_;
    note("mark");
  }
  void synchronizeEvent(void* event) const override { note(event == &mutex_ ? "wait for the mark" : "another event"); }
  void synchronizeStream(const c10::Stream&) const override { note("wait for the stream"); }

 private:
  void note(const char* what) const {
    const std::lock_guard lock(mutex_);
    calls_.push_back({what, std::this_thread::get_id()});
  }

  c10::DeviceType type_;
  mutable std::mutex mutex_;
  mutable std::vector<Call> calls_;
};

}  // namespace rlalgo::support
