#include "ranks.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/process_world.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/processors.hpp>
#include <rlalgo/run/checkpoint.hpp>

#include "log.hpp"

namespace rlalgo::cli {

namespace {

constexpr std::array<int, 4> forwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int most_ranks = 1024;

// A pipe whose lines go on with the name of a rank in front.
struct Lines {
  int from = -1, to = -1;
  std::string name, open = {};

  // False when the other side is closed.
  bool pump() {
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(from, buffer.data(), buffer.size());
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    open.append(buffer.data(), static_cast<std::size_t>(got));
    if (got == 0 && !open.empty()) open += '\n';
    for (std::size_t end; (end = open.find('\n')) != std::string::npos; open.erase(0, end + 1)) {
      const std::string line = end == 0 ? "" : name + open.substr(0, end + 1);
      for (std::string_view rest = line; !rest.empty();) {
        const ssize_t written = ::write(to, rest.data(), rest.size());
        if (written < 0 && errno != EINTR) break;  // who read our output has gone
        if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
      }
    }
    return got > 0;
  }
};

struct Rank {
  pid_t process = -1;
  bool running = false;
  bool killed = false;
  int status = 0;  // as a shell reports it
};

[[noreturn]] void raise_system(const std::string& what) {
  core::raise("cli", 24, {.what = "the ranks cannot be started: " + what, .found = std::strerror(errno)});
}

// The processors of each rank: neighbours, none twice while there are enough.
std::vector<cpu_set_t> processors(int ranks) {
  cpu_set_t all;
  std::vector<int> allowed;
  if (::sched_getaffinity(0, sizeof all, &all) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &all)) allowed.push_back(cpu);
  std::vector<cpu_set_t> out;
  if (allowed.empty()) return out;  // more than a set has room for: the system places them
  const auto each = static_cast<std::size_t>(std::max(1, os::usable_processors() / ranks));
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
    CPU_ZERO(&out.emplace_back());
    for (std::size_t i = 0; i < each; ++i) CPU_SET(allowed[(r * each + i) % allowed.size()], &out.back());
  }
  return out;
}

std::vector<std::string> environment(int rank, int ranks, std::uint16_t port) {
  const std::array<std::pair<std::string, std::string>, 7> own = {{{"RANK", std::to_string(rank)},
                                                                   {"LOCAL_RANK", std::to_string(rank)},
                                                                   {"WORLD_SIZE", std::to_string(ranks)},
                                                                   {"LOCAL_WORLD_SIZE", std::to_string(ranks)},
                                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                                   {"MASTER_PORT", std::to_string(port)},
                                                                   {"TORCHELASTIC_USE_AGENT_STORE", "True"}}};
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (std::none_of(own.begin(), own.end(), [&](const auto& pair) { return pair.first == name; }))
      out.emplace_back(text);
  }
  for (const auto& [name, value] : own) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// How the ranks of one start ended.
struct Ended {
  int status = 0;
  std::string why = {};
  bool again = false;  // another start may end otherwise
};

class Ranks {
 public:
  Ranks(int ranks, double grace_seconds)
      : grace_(grace_seconds), ranks_(static_cast<std::size_t>(ranks)), store_(blocked()) {
    watched_ = ::signalfd(-1, &mask_, SFD_CLOEXEC | SFD_NONBLOCK);
    if (watched_ < 0) raise_system("signalfd");
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks() {
    signal_all(SIGKILL);
    for (Rank& rank : ranks_)
      if (rank.running) ::waitpid(rank.process, nullptr, 0);
    for (const Lines& lines : lines_) ::close(lines.from);
    ::close(watched_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  void start(const std::vector<std::string>& words) {
    std::vector<std::string> arguments = {"rlalgo"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    const std::vector<char*> argv = pointers(arguments);
    const std::vector<cpu_set_t> places = processors(static_cast<int>(ranks_.size()));
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      std::vector<std::string> variables =
          environment(static_cast<int>(r), static_cast<int>(ranks_.size()), store_.port());
      const std::vector<char*> envp = pointers(variables);
      std::array<int, 2> out = {-1, -1}, err = {-1, -1};
      if (r > 0 && (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0)) raise_system("pipe");
      const pid_t self = ::getpid();
      const pid_t process = ::fork();
      if (process < 0) raise_system("fork");
      if (process == 0) {  // only what is safe between fork and exec
        ::setpgid(0, 0);   // a Ctrl-C of the terminal comes through this process, once
        ::prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (::getppid() != self) ::_exit(1);
        if (r < places.size()) ::sched_setaffinity(0, sizeof places[r], &places[r]);
        if (r > 0) {
          ::dup2(out[1], STDOUT_FILENO);
          ::dup2(err[1], STDERR_FILENO);
        }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        ::execve("/proc/self/exe", argv.data(), envp.data());
        ::_exit(127);
      }
      ranks_[r].process = process;
      ranks_[r].running = true;
      if (r == 0) continue;
      const std::string name = "[rank " + std::to_string(r) + "] ";
      for (const auto& [pipe, to] : {std::pair(out, STDOUT_FILENO), std::pair(err, STDERR_FILENO)}) {
        ::close(pipe[1]);
        lines_.push_back({pipe[0], to, name});
      }
    }
  }

  Ended wait() {
    while (running() || !lines_.empty()) {
      std::vector<pollfd> polled = {{watched_, POLLIN, 0}};
      for (const Lines& lines : lines_) polled.push_back({lines.from, POLLIN, 0});
      ::poll(polled.data(), polled.size(), 100);
      for (std::size_t i = lines_.size(); i-- > 0;) {
        if (polled[i + 1].revents == 0 || lines_[i].pump()) continue;
        ::close(lines_[i].from);
        lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      take_signals();
      reap();
      if (failed_) kill_stopped();
      if (failed_ && running() && since_.seconds() > grace_) signal_all(SIGKILL);
    }
    if (!failed_) return {};
    const auto first = distributed::first_failure(store_);
    std::size_t rank = first ? static_cast<std::size_t>(first->rank) : first_bad_;
    if (rank >= ranks_.size() || ranks_[rank].status == 0) rank = first_bad_;
    const Rank& cause = ranks_[rank];
    return {.status = cause.status,
            .why = "rank " + std::to_string(rank) +
                   (cause.killed ? " was killed by signal " + std::to_string(cause.status - 128)
                                 : " ended with status " + std::to_string(cause.status)),
            .again = !asked_to_stop_ && (cause.killed || (cause.status == 1 && distributed::has_begun(store_)))};
  }

 private:
  // The store's threads must not take the signals.
  distributed::Store blocked() {
    ::sigemptyset(&mask_);
    ::sigaddset(&mask_, SIGCHLD);
    for (const int signal : forwarded) ::sigaddset(&mask_, signal);
    ::pthread_sigmask(SIG_BLOCK, &mask_, &before_);
    return distributed::Store::listen("127.0.0.1", 0);
  }

  [[nodiscard]] bool running() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
  }
  void signal_all(int signal) const {
    for (const Rank& rank : ranks_)
      if (rank.running) ::kill(rank.process, signal);
  }

  // Others have failed, and it cannot hear of that.
  void kill_stopped() const {
    for (const Rank& rank : ranks_) {
      siginfo_t info = {};
      if (rank.running && ::waitid(P_PID, static_cast<id_t>(rank.process), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
          info.si_pid == rank.process)
        ::kill(rank.process, SIGKILL);
    }
  }

  void take_signals() {
    signalfd_siginfo info;
    while (::read(watched_, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) continue;
      asked_to_stop_ = true;
      signal_all(static_cast<int>(info.ssi_signo));
    }
  }

  void reap() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      int status = 0;
      if (!ranks_[r].running || ::waitpid(ranks_[r].process, &status, WNOHANG) != ranks_[r].process) continue;
      ranks_[r].running = false;
      ranks_[r].killed = WIFSIGNALED(status);
      ranks_[r].status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (ranks_[r].status == 0) continue;
      if (WIFSIGNALED(status) && !failed_)
        fail("rank " + std::to_string(r) + " was killed: " + ::strsignal(WTERMSIG(status)));
      distributed::report_failure(
          store_,
          {static_cast<int>(r), WIFSIGNALED(status) ? std::string("it was killed: ") + ::strsignal(WTERMSIG(status))
                                                    : "it ended with status " + std::to_string(ranks_[r].status)});
      if (failed_) continue;
      failed_ = true;
      first_bad_ = r;
      since_ = os::Stopwatch();
    }
  }

  double grace_;
  std::vector<Rank> ranks_;
  sigset_t mask_ = {}, before_ = {};
  distributed::Store store_;
  int watched_ = -1;
  std::vector<Lines> lines_;
  bool failed_ = false, asked_to_stop_ = false;
  std::size_t first_bad_ = 0;
  os::Stopwatch since_;
};

// Takes the option out of `words`; −1: it is not there.
int take_number(std::vector<std::string>& words, const std::string& option, const std::string& what, int least) {
  for (auto word = words.begin(); word != words.end(); ++word) {
    std::string name = word->substr(0, word->find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    if (name != option) continue;
    const bool joined = word->find('=') != std::string::npos;
    const auto value = joined ? word : word + 1;
    const std::string text = joined ? word->substr(name.size() + 1) : value == words.end() ? std::string() : *value;
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < least || number > most_ranks)
      core::raise_usage("cli", 23,
                        {.what = option + " is no number of " + what,
                         .found = text.empty() ? "nothing" : text,
                         .expected = std::to_string(least) + " to " + std::to_string(most_ranks)});
    words.erase(word, value == words.end() ? value : value + 1);
    return number;
  }
  return -1;
}

// The newest checkpoint that was written since; an earlier run's is none of this one's.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& output_dir,
                                                       std::filesystem::file_time_type since) {
  std::optional<std::filesystem::path> out;
  if (!std::filesystem::is_directory(output_dir)) return out;
  for (const run::Checkpoint& one : run::list_checkpoints(output_dir)) {
    const std::filesystem::path state = one.path / run::state_file;
    if (std::filesystem::exists(state) && std::filesystem::last_write_time(state) >= since) out = one.path;
  }
  return out;
}

}  // namespace

int take_ranks(std::vector<std::string>& words) {
  const int ranks = take_number(words, "--nproc-per-node", "ranks", 1);
  const int processes = take_number(words, "--num-processes", "ranks", 1);
  if (ranks > 0 && processes > 0 && ranks != processes)
    core::raise_usage("cli", 23,
                      {.what = "--nproc-per-node and --num-processes say different things",
                       .found = std::to_string(ranks) + " and " + std::to_string(processes),
                       .remedy = "give one of them"});
  return std::max({0, ranks, processes});
}
int take_launched_ranks(std::vector<std::string>& words) {
  const auto name_of = [](const std::string& word) { return word.substr(0, word.find('=')); };
  for (auto word = words.begin(); word != words.end() && *word != "--"; ++word) {
    if (name_of(*word) != "--launcher") continue;
    const bool joined = word->size() > name_of(*word).size();
    const auto value = joined ? word : word + 1;
    const std::string launcher = joined ? word->substr(name_of(*word).size() + 1) : value == words.end() ? "" : *value;
    if (launcher != "accelerate" && launcher != "torchrun" && launcher != "python")
      core::raise_usage("cli", 7,
                        {.what = "an option has no such value",
                         .found = "--launcher " + launcher,
                         .expected = "accelerate, torchrun or python"});
    note("--launcher " + launcher + " has no effect: this program starts its ranks itself (--num-processes)");
    words.erase(word, value == words.end() ? value : value + 1);
    break;
  }
  const auto mark = std::find(words.begin(), words.end(), "--");
  std::vector<std::string> launchers(mark == words.end() ? mark : mark + 1, words.end());
  words.erase(mark, words.end());
  const int own = take_ranks(words), ranks = std::max(own, take_ranks(launchers));
  std::string left;
  for (const std::string& word : launchers) left += " " + word;
  if (!left.empty()) warning("what a launcher is given has no effect, as there is none:" + left);
  return ranks;
}
int take_restarts(std::vector<std::string>& words) { return take_number(words, "--max-restarts", "restarts", 0); }

int run_ranks(int ranks, const std::vector<std::string>& words, double grace_seconds, const Restarts& restarts) {
  const auto began = std::filesystem::file_time_type::clock::now() - std::chrono::seconds(1);  // of coarse clocks
  std::vector<std::string> now = words;
  for (int restart = 1;; ++restart) {
    const Ended ended = [&] {
      Ranks all(ranks, grace_seconds);
      all.start(now);
      return all.wait();
    }();
    if (!ended.again || restart > restarts.most) return ended.status;
    const auto checkpoint = newest_checkpoint(restarts.output_dir, began);
    warning(ended.why + ": all ranks are started anew from " +
            (checkpoint ? checkpoint->string() : std::string("the beginning")) + " (restart " +
            std::to_string(restart) + " of " + std::to_string(restarts.most) + ")");
    now = words;
    if (checkpoint) now.insert(now.end(), {"--resume-from-checkpoint", checkpoint->string()});
  }
}

}  // namespace rlalgo::cli
