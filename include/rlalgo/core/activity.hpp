// What a thread is doing inside a step, for what shows it to a person.
//
//   core::Activity training("training", parts);          // on the stack, where the work is done
//   for (…) { …; training.advance(); }
//
// Activities nest; a listener hears of every beginning, advance and end on the thread that it listens on. Without one, and on
// other threads, an activity costs a pointer. Nothing that is computed depends on it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace rlalgo::core {

class Activity {
 public:
  using Listener = std::function<void()>;

  // `what` is a literal. `total`: how often it advances, as far as that is known; 0: it is not.
  explicit Activity(const char* what, std::int64_t total = 0) : what_(what), total_(total), outer_(innermost_) {
    innermost_ = this;
    tell();
  }
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  ~Activity() {
    innermost_ = outer_;
    tell();
  }

  void advance(std::int64_t count = 1) {
    done_ += count;
    tell();
  }
  // The same of the innermost activity, where there is one: for code that is far below it.
  static void advance_innermost(std::int64_t count = 1) {
    if (innermost_ != nullptr) innermost_->advance(count);
  }

  // Time has passed, nothing else: what shows it may count seconds.
  static void tick() { tell(); }

  [[nodiscard]] static const Activity* innermost() noexcept { return innermost_; }
  [[nodiscard]] const Activity* outer() const noexcept { return outer_; }
  [[nodiscard]] const char* what() const noexcept { return what_; }
  [[nodiscard]] std::int64_t done() const noexcept { return done_; }
  [[nodiscard]] std::int64_t total() const noexcept { return total_; }

  // Of this thread; the former listener is back when it dies.
  class Listening {
   public:
    explicit Listening(Listener listener) : former_(std::exchange(listener_, std::move(listener))) {}
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;
    ~Listening() { listener_ = std::move(former_); }

   private:
    Listener former_;
  };

 private:
  static void tell() {
    if (listener_) listener_();
  }

  const char* what_;
  std::int64_t total_, done_ = 0;
  Activity* outer_;
  inline static thread_local Activity* innermost_ = nullptr;
  inline static thread_local Listener listener_ = {};
};

}  // namespace rlalgo::core
