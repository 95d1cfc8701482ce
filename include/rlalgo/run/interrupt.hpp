// Ctrl-C and SIGTERM: the first asks the loop to finish its step (or evaluation), save and stop, and says so on
// standard error; the second ends the process at once.
//
// While an Interrupt lives it owns both signals and puts the former handlers back when it dies; SIGPIPE is ignored, so
// that a reader of the progress that goes away (`| head`) does not end the run. Only one may live at a time. A run
// ended this way exits with status 130.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace rlalgo::run {

class Interrupt {
 public:
  static constexpr int exit_code = 130;

  Interrupt() {
    flag().store(0);
    struct sigaction action = {};
    action.sa_handler = &Interrupt::handle;
    ::sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGINT, &action, &old_int_);
    ::sigaction(SIGTERM, &action, &old_term_);
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, &old_pipe_);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
    ::sigaction(SIGPIPE, &old_pipe_, nullptr);
  }

  [[nodiscard]] static bool requested() noexcept { return flag().load(std::memory_order_relaxed) != 0; }

 private:
  static std::atomic<int>& flag() noexcept {
    static std::atomic<int> value{0};
    return value;
  }
  static void handle(int) {
    if (flag().fetch_add(1) > 0) ::_exit(exit_code);
    static constexpr char text[] = "\nstopping after this step; interrupt again to stop at once\n";
    const int before = errno;
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, sizeof text - 1);
    errno = before;
  }
  struct sigaction old_int_ = {};
  struct sigaction old_term_ = {};
  struct sigaction old_pipe_ = {};
};

static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

}  // namespace rlalgo::run
