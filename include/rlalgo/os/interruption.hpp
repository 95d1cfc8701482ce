// A request to stop that comes from outside (a signal, see run/interrupt.hpp): reported once, and asked for by what waits or
// works for long.
//
//   stop_if_interrupted();            between two pieces of a long work: raises once a stop is asked for
//   Interruption::Deferred whole;     what is under way will be finished first (a step, and its checkpoint): meanwhile
//                                     stop_if_interrupted() does nothing, and only waits that can be given up are
//
// Errors: [rlalgo.os.8] the work under way was given up; exit status 128 + the number of the signal.
#pragma once

#include <atomic>
#include <string>

#include <rlalgo/core/error.hpp>

namespace rlalgo::os {

class Interruption {
 public:
  // The first request counts. May be called by a signal handler.
  static void request(int signal) noexcept {
    int none = 0;
    signal_().compare_exchange_strong(none, signal);
  }
  static void clear() noexcept { signal_().store(0); }

  [[nodiscard]] static bool requested() noexcept { return signal() != 0; }
  [[nodiscard]] static int signal() noexcept { return signal_().load(); }  // 0: nothing is asked for
  [[nodiscard]] static bool deferred() noexcept { return deferred_().load() > 0; }
  // As a shell reports a process that the signal ended.
  [[nodiscard]] static int exit_code() noexcept { return 128 + (requested() ? signal() : 2); }

  class Deferred {
   public:
    Deferred() noexcept { deferred_().fetch_add(1); }
    ~Deferred() { deferred_().fetch_sub(1); }
    Deferred(const Deferred&) = delete;
    Deferred& operator=(const Deferred&) = delete;
  };

 private:
  static std::atomic<int>& signal_() noexcept {
    static std::atomic<int> value{0};
    return value;
  }
  static std::atomic<int>& deferred_() noexcept {
    static std::atomic<int> value{0};
    return value;
  }
  static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");
};

// Something was given up because a stop was asked for: no failure.
class Interrupted : public core::Error {
 public:
  using core::Error::Error;
  [[nodiscard]] int exit_code() const noexcept override { return exit_code_; }
  [[nodiscard]] bool failure() const noexcept override { return false; }

 private:
  int exit_code_ = Interruption::exit_code();
};

[[noreturn]] inline void raise_interrupted(const std::string& room, int number, const core::ErrorText& text) {
  throw Interrupted(room, number, text);
}

inline void stop_if_interrupted() {
  if (!Interruption::requested() || Interruption::deferred()) return;
  raise_interrupted("os", 8, {.what = "interrupted before the work was done"});
}

}  // namespace rlalgo::os
