// Definitions of gym_process.hpp.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/gym_process.hpp>

extern char** environ;

namespace rlalgo::remote {

RLALGO_INLINE GymProcess::GymProcess(GymProcessConfig config) : config_(std::move(config)) { start(); }

RLALGO_INLINE void GymProcess::start() {
  const std::filesystem::path bin = std::filesystem::absolute(config_.directory) / ".venv" / "bin";
  const std::string program = (bin / "ng_run").string();
  if (::access(program.c_str(), X_OK) != 0)
    core::raise("remote", 78,
                {.what = "there is no NeMo Gym to start",
                 .found = program + ": " + std::strerror(errno),
                 .expected = "nemo-gym installed into .venv of nemo_gym_dir",
                 .where = config_.directory.string(),
                 .remedy = "scripts/gym_servers.sh --only-install makes one, or set nemo_gym_auto_start: false"});
  std::string paths;
  for (const std::string& path : config_.config_paths) paths += (paths.empty() ? "" : ",") + path;
  std::vector<std::string> arguments = {program, "+config_paths=[" + paths + "]", "+skip_venv_if_present=true",
                                        "+head_server.host=127.0.0.1",
                                        "+head_server.port=" + std::to_string(config_.head_port)};
  if (!config_.waits_for_model) arguments.push_back("+model_endpoint_readiness_timeout_seconds=0");
  arguments.insert(arguments.end(), config_.overrides.begin(), config_.overrides.end());
  std::vector<std::string> environment = {"RAY_AUTH_MODE=disabled", "RAY_USAGE_STATS_ENABLED=0"};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.starts_with("PATH="))
      environment.push_back("PATH=" + bin.string() + ":" + text.substr(5));
    else if (!text.starts_with("RAY_AUTH_MODE=") && !text.starts_with("RAY_USAGE_STATS_ENABLED="))
      environment.push_back(text);
  }
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (std::string& text : texts) out.push_back(text.data());
    out.push_back(nullptr);
    return out;
  };
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  const std::string directory = config_.directory.string(), log = config_.log.string();
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) core::raise("remote", 79, {.what = "the NeMo Gym cannot be started", .found = std::strerror(errno)});
  if (child == 0) {  // only calls that are safe between fork and exec
    ::setsid();
#if defined(__linux__)
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
    if (::getppid() != parent) ::_exit(1);
    const int none = ::open("/dev/null", O_RDONLY), out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (none < 0 || out < 0 || ::dup2(none, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(out, 2) < 0) ::_exit(126);
    for (int descriptor = 3; descriptor < 1024; ++descriptor) ::close(descriptor);
    sigset_t nothing;
    sigemptyset(&nothing);
    ::sigprocmask(SIG_SETMASK, &nothing, nullptr);
    for (const int number : {SIGINT, SIGTERM, SIGPIPE, SIGCHLD, SIGHUP}) ::signal(number, SIG_DFL);
    if (::chdir(directory.c_str()) != 0) ::_exit(126);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  pid_ = child;
  ++starts_;
}

RLALGO_INLINE void GymProcess::require_running() {
  int status = 0;
  if (pid_ < 0 || ::waitpid(pid_, &status, WNOHANG) == 0) return;
  ::kill(-pid_, SIGKILL);  // what it may have left behind
  pid_ = -1;
  const std::string end = log_end(12);
  if (starts_ < 3 && end.find("timed out during startup") != std::string::npos) return start();
  const std::string how = WIFEXITED(status) ? "exit status " + std::to_string(WEXITSTATUS(status))
                                            : "signal " + std::to_string(WTERMSIG(status));
  core::raise("remote", 79,
              {.what = "the NeMo Gym that was started has ended",
               .found = how + (end.empty() ? "" : "\n" + end),
               .where = config_.log.string()});
}

RLALGO_INLINE std::string GymProcess::log_end(std::size_t lines) const {
  std::ifstream file(config_.log);
  std::deque<std::string> last;
  for (std::string line; std::getline(file, line);) {
    last.push_back(line.substr(0, 500));
    if (last.size() > lines) last.pop_front();
  }
  std::string out;
  for (const std::string& line : last) out += (out.empty() ? "" : "\n") + line;
  return out;
}

RLALGO_INLINE GymProcess::~GymProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  const os::Stopwatch watch;
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (watch.seconds() > config_.stop_seconds) {
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ::kill(-pid_, SIGKILL);
}

}  // namespace rlalgo::remote
