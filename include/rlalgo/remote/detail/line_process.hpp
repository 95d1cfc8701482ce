// A child process that answers lines: one line out, one line back, each exchange under a deadline.
//
// The child leads a process group of its own (Ctrl-C on the terminal does not reach it) and talks on descriptor 3. Its
// stdin is /dev/null, its stdout is our stderr, so that nothing it prints can damage the protocol. It is to end with all
// that it started when the channel is closed, as python/host.py does; what is still there two seconds later is killed
// with its process group. Posix only.
//
// When a stop is asked for, an exchange under way ends at once, or, of what is to be finished first (a step of a run), after
// stop_seconds at most, counted from where this process was first waited for with the stop asked for.
//
// Errors: [rlalgo.os.8] an exchange was given up because a stop was asked for (os/interruption.hpp).
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>

extern char** environ;

namespace rlalgo::remote::detail {

class LineProcess {
 public:
  enum class Outcome { answered, late, gone, too_long };
  static constexpr std::size_t longest_answer = std::size_t{1} << 30U;  // bytes
  static constexpr double stop_seconds = 2.0;

  LineProcess() = default;
  LineProcess(const LineProcess&) = delete;
  LineProcess& operator=(const LineProcess&) = delete;
  ~LineProcess() { finish(); }

  // Starts `arguments[0]`, looked up in PATH. Returns 0 or an errno.
  int start(const std::vector<std::string>& arguments) {
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return errno;
    // Away from 0–3, so that no dup2 below overwrites what another still needs.
    const int theirs = ::fcntl(ends[1], F_DUPFD_CLOEXEC, 16);
    const int moved = errno;
    ::close(ends[1]);
    if (theirs < 0) {
      ::close(ends[0]);
      return moved;
    }
    std::vector<char*> argv;
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);

    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, 2, 1);
    posix_spawn_file_actions_adddup2(&files, theirs, 3);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
    posix_spawn_file_actions_addclosefrom_np(&files, 4);
#endif
#endif
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, ours;
    sigemptyset(&none);
    sigemptyset(&ours);
    for (const int s : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD}) sigaddset(&ours, s);  // SIGHUP may be ignored (nohup)
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &ours);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int error = ::posix_spawnp(&child_, argv[0], &files, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    ::close(theirs);
    if (error != 0) {
      child_ = -1;
      ::close(ends[0]);
      return error;
    }
    channel_ = ends[0];
    return 0;
  }

  [[nodiscard]] bool running() const noexcept { return child_ > 0; }

  // In the place of stop_seconds.
  void set_stop_seconds(double seconds) { stop_seconds_ = seconds; }

  // Sends `question` (without its line end) and waits for the line that answers it.
  Outcome exchange(const std::string& question, std::string& answer, const os::Deadline& deadline) {
    const std::string line = question + "\n";
    for (std::size_t sent = 0; sent < line.size();) {
      const ssize_t n = ::send(channel_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0)
        sent += static_cast<std::size_t>(n);
      else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (const Outcome waited = wait_for(POLLOUT, deadline); waited != Outcome::answered) return waited;
      } else if (errno != EINTR) {
        return Outcome::gone;
      }
    }
    char block[65536];
    for (std::size_t seen = 0;;) {
      const std::size_t end = received_.find('\n', seen);
      if (end != std::string::npos) {
        answer = received_.substr(0, end);
        received_.erase(0, end + 1);
        return Outcome::answered;
      }
      seen = received_.size();
      if (seen > longest_answer) return Outcome::too_long;
      const ssize_t n = ::recv(channel_, block, sizeof block, MSG_DONTWAIT);
      if (n > 0)
        received_.append(block, static_cast<std::size_t>(n));
      else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        return Outcome::gone;
      else if (const Outcome waited = wait_for(POLLIN, deadline); waited != Outcome::answered)
        return waited;
    }
  }

  // Ends the child and everything it started, after `grace_seconds` at most. Returns how it ended: "exit status 3",
  // "signal 9 (Killed)".
  std::string stop(double grace_seconds) {
    if (child_ <= 0) return ended_;
    for (const os::Deadline grace(grace_seconds); !exited() && !grace.passed();)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    reap();
    return ended_;
  }

 private:
  static constexpr int liveness_milliseconds = 250;
  static constexpr double leaving_seconds = 2.0;  // for the child to end what it started

  // Waits for the channel; also notices a dead child whose descendants still hold the other end.
  Outcome wait_for(short events, const os::Deadline& deadline) {
    for (;;) {
      if (due_to_stop()) {
        stop(0.0);
        os::raise_interrupted("os", 8, {.what = "interrupted while another program was waited for"});
      }
      const int left = deadline.milliseconds_left();
      if (left == 0) return Outcome::late;
      pollfd entry{channel_, events, 0};
      const int ready = ::poll(&entry, 1, left < liveness_milliseconds ? left : liveness_milliseconds);
      if (ready > 0) return Outcome::answered;
      if (ready < 0 && errno != EINTR) return Outcome::gone;
      if (ready == 0 && exited()) return Outcome::gone;
    }
  }

  [[nodiscard]] bool due_to_stop() {
    if (!os::Interruption::requested()) {
      stop_by_.reset();
      return false;
    }
    if (!stop_by_) stop_by_.emplace(stop_seconds_);
    return !os::Interruption::deferred() || stop_by_->passed();
  }

  // True when the child has ended; it stays a zombie, so its process group id is not reused yet.
  [[nodiscard]] bool exited() const {
    siginfo_t info;
    std::memset(&info, 0, sizeof info);
    const int result = ::waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOHANG | WNOWAIT);
    return result != 0 || info.si_pid == child_;
  }

  void reap() {
    ::close(std::exchange(channel_, -1));
    for (const os::Deadline grace(leaving_seconds); !exited() && !grace.passed();)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ::kill(-child_, SIGKILL);
    int status = 0;
    pid_t result = 0;
    do result = ::waitpid(child_, &status, 0);
    while (result < 0 && errno == EINTR);
    if (result != child_)
      ended_ = "unknown status";
    else if (WIFEXITED(status))
      ended_ = "exit status " + std::to_string(WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
      ended_ = "signal " + std::to_string(WTERMSIG(status)) + " (" + ::strsignal(WTERMSIG(status)) + ")";
    child_ = -1;
  }

  // Orderly end: the child sees the end of its input, runs its exit handlers, and is ended after five seconds at most.
  void finish() {
    if (child_ <= 0) return;
    ::shutdown(channel_, SHUT_WR);
    stop(5.0);
  }

  pid_t child_ = -1;
  int channel_ = -1;
  std::string received_;
  std::optional<os::Deadline> stop_by_;  // since a stop was asked for
  double stop_seconds_ = stop_seconds;
  std::string ended_ = "not started";
};

}  // namespace rlalgo::remote::detail
