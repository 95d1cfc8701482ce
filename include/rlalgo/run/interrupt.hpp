// Signals that ask a program to end: Ctrl-C (SIGINT), SIGTERM, SIGHUP (the terminal is gone) and SIGQUIT.
//
//   Stage::at_once    the first signal ends the process, with a line: there is nothing to put in order
//   Stage::starting   the first one asks whatever looks at os::Interruption, or has token(), to end; two seconds later
//                     the process ends in any case
//   Stage::running    the first one asks the loop to finish its step (or evaluation), save and stop; only what has
//                     token() ends at once, such as the wait for a server
//
// Each says so on standard error. The second signal ends the process at once, SIGQUIT with a core dump as ever. The exit
// status is 128 + the number of the first signal: 130, 143, 129, 131. SIGHUP and SIGQUIT stay ignored where they were
// (nohup). In Stage::running SIGPIPE is ignored, so that a reader of the progress that goes away (`| head`) does not end
// the run.
//
// While an Interrupt lives it owns these signals, and puts the former handlers back when it dies. They nest: the
// outermost owns the signals, an inner Stage::running is that stage while it lives. With the outermost the request is
// forgotten.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string_view>
#include <thread>

#include <rlalgo/os/interruption.hpp>

namespace rlalgo::run {

class Interrupt {
 public:
  enum class Stage { at_once, starting, running };

  // `what_ends`: what the first signal says in Stage::running; it must live as long.
  explicit Interrupt(Stage stage = Stage::running, const char* what_ends = "stopping after this step") {
    if (stage == Stage::running) {
      deferred_.emplace();
      shared().what_ends = what_ends;
      struct sigaction ignore = {};
      ignore.sa_handler = SIG_IGN;
      ::sigaction(SIGPIPE, &ignore, &old_pipe_);
    }
    if (shared().owned) return;
    owner_ = true;
    shared().owned = true;
    shared().at_once = stage == Stage::at_once;
    shared().signals = 0;
    shared().source = std::stop_source();
    shared().wake = ::eventfd(0, EFD_CLOEXEC);
    os::Interruption::clear();
    watcher_ = std::thread([this] { watch(); });
    install();
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt() {
    if (deferred_) ::sigaction(SIGPIPE, &old_pipe_, nullptr);
    if (!owner_) return;
    for (std::size_t i = 0; i < ending.size(); ++i) ::sigaction(ending[i], &old_[i], nullptr);
    over_ = true;
    wake();
    watcher_.join();
    ::close(shared().wake.exchange(-1));
    os::Interruption::clear();
    shared().owned = false;
  }

  [[nodiscard]] static bool requested() noexcept { return os::Interruption::requested(); }
  [[nodiscard]] static int exit_code() noexcept { return os::Interruption::exit_code(); }
  // Asked to stop by the first signal, on another thread than the handler's. Without an Interrupt: never.
  [[nodiscard]] static std::stop_token token() {
    return shared().owned ? shared().source.get_token() : std::stop_token();
  }

 private:
  static constexpr std::array<int, 4> ending = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  static constexpr int patience_milliseconds = 2000;  // of Stage::starting

  struct Shared {
    std::atomic<bool> owned{false}, at_once{false};
    std::atomic<int> signals{0};
    std::atomic<int> wake{-1};
    std::atomic<const char*> what_ends{""};
    std::stop_source source{std::nostopstate};
  };
  static Shared& shared() noexcept {
    static Shared value;
    return value;
  }

  void install() {
    struct sigaction action = {};
    action.sa_handler = &Interrupt::handle;
    ::sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < ending.size(); ++i) {
      ::sigaction(ending[i], &action, &old_[i]);
      const bool ignored = (ending[i] == SIGHUP || ending[i] == SIGQUIT) && old_[i].sa_handler == SIG_IGN;
      if (ignored) ::sigaction(ending[i], &old_[i], nullptr);
    }
  }

  static void say(std::string_view text) noexcept {
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  }
  // In one piece, so that lines of several processes stay apart.
  static void say_line(std::string_view what) noexcept {
    constexpr std::string_view then = "; interrupt again to stop at once\n";
    std::array<char, 256> line{'\n'};
    const std::size_t length = std::min(what.size(), line.size() - then.size() - 1);
    std::copy_n(what.begin(), length, line.begin() + 1);
    std::copy(then.begin(), then.end(), line.begin() + 1 + static_cast<std::ptrdiff_t>(length));
    say({line.data(), 1 + length + then.size()});
  }
  static void wake() noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(shared().wake, &one, sizeof one);
  }

  static void handle(int signal) {
    const int before = errno;
    const bool again = shared().signals.fetch_add(1) > 0;
    if (again && signal == SIGQUIT) {
      ::signal(SIGQUIT, SIG_DFL);
      ::raise(SIGQUIT);  // taken when this handler returns
      return;
    }
    if (again) ::_exit(exit_code());
    os::Interruption::request(signal);
    const bool deferred = os::Interruption::deferred();
    if (!deferred && shared().at_once) {
      say("\ninterrupted\n");
      ::_exit(exit_code());
    }
    say_line(deferred ? shared().what_ends.load() : "stopping");
    wake();
    errno = before;
  }

  // Waits for the first signal and does what a handler must not.
  void watch() const {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    const auto woken = [](int milliseconds) {
      pollfd entry{shared().wake, POLLIN, 0};
      int ready = 0;
      do ready = ::poll(&entry, 1, milliseconds);
      while (ready < 0 && errno == EINTR);
      std::uint64_t count = 0;
      return ready > 0 && ::read(shared().wake, &count, sizeof count) > 0;
    };
    woken(-1);
    if (over_) return;
    shared().source.request_stop();
    if (woken(patience_milliseconds) || over_ || os::Interruption::deferred()) return;
    say("interrupted\n");
    ::_exit(exit_code());
  }

  std::optional<os::Interruption::Deferred> deferred_;
  bool owner_ = false;
  std::atomic<bool> over_{false};
  std::thread watcher_;
  std::array<struct sigaction, ending.size()> old_ = {};
  struct sigaction old_pipe_ = {};
};

}  // namespace rlalgo::run
