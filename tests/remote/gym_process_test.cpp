#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/gym_process.hpp>

using namespace rlalgo;
using remote::GymProcess;
using remote::GymProcessConfig;
using support::lacks;
using support::raised_by;

namespace {

// A folder with a .venv/bin/ng_run that is this script.
GymProcessConfig with(const support::ScratchDirectory& folder, const std::string& script) {
  const std::string file = folder.write(".venv/bin/ng_run", "#!/bin/sh\n" + script);
  ::chmod(file.c_str(), 0755);
  return {.directory = folder.path(),
          .config_paths = {"a.yaml", "b.yaml"},
          .head_port = 11234,
          .overrides = {"+policy_base_url=http://127.0.0.1:8/v1"},
          .log = folder.path() / "log"};
}

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

// Waits until `done` or ten seconds are over.
template <class F>
bool soon(F done) {
  const os::Stopwatch watch;
  while (!done() && watch.seconds() < 10) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return done();
}

}  // namespace

TEST_CASE("the Gym is started in its folder with our port, and ends with all that it started") {
  const support::ScratchDirectory folder;
  pid_t pid = 0;
  {
    GymProcess process(with(folder, "echo \"$@\" in $(pwd) $RAY_AUTH_MODE\nsleep 60 &\necho $! > child\nwait\n"));
    pid = process.pid();
    CHECK(soon(
        [&] { return std::filesystem::exists(folder.path() / "child") && !text_of(folder.path() / "child").empty(); }));
    process.require_running();
    CHECK(lacks(text_of(folder.path() / "log"),
                {"+config_paths=[a.yaml,b.yaml]", "+skip_venv_if_present=true", "+head_server.port=11234",
                 "+policy_base_url=http://127.0.0.1:8/v1", "+model_endpoint_readiness_timeout_seconds=0",
                 std::filesystem::canonical(folder.path()).c_str(), "disabled"}) == "");
    CHECK(::getsid(pid) == pid);
  }
  CHECK(::kill(pid, 0) != 0);
  const int child = std::stoi(text_of(folder.path() / "child"));
  CHECK(soon([&] {
    return ::kill(child, 0) != 0 ||
           text_of("/proc/" + std::to_string(child) + "/stat").find(") Z") != std::string::npos;
  }));
}

TEST_CASE("a Gym that does not end when it is asked to is killed") {
  const support::ScratchDirectory folder;
  const os::Stopwatch watch;
  {
    GymProcessConfig config = with(folder, "trap '' TERM\necho up\nwhile :; do sleep 1; done\n");
    config.stop_seconds = 0.3;
    GymProcess process(config);
    CHECK(soon([&] { return !text_of(folder.path() / "log").empty(); }));
  }
  CHECK(watch.seconds() < 10);
}

TEST_CASE("a Gym that ends is an error with the end of its log; a start for which Ray had no time is repeated") {
  const support::ScratchDirectory folder;
  const auto ended = [&](const std::string& script) {
    return raised_by([&] {
      GymProcess process(with(folder, script));
      for (int i = 0; i < 500; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        process.require_running();
      }
    });
  };
  CHECK(lacks(ended("echo no such config >&2\nexit 3\n"), {"remote.79", "exit status 3", "no such config", "log"}) ==
        "");
  CHECK(lacks(ended("echo x >> tries\necho The current node timed out during startup\nexit 1\n"), {"remote.79"}) == "");
  CHECK(text_of(folder.path() / "tries") == "x\nx\nx\n");
}

TEST_CASE("without an ng_run there is nothing to start") {
  const support::ScratchDirectory folder;
  CHECK(lacks(raised_by(
                  [&] { GymProcess({.directory = folder.path(), .config_paths = {}, .log = folder.path() / "log"}); }),
              {"remote.78", ".venv/bin/ng_run", "nemo_gym_auto_start: false"}) == "");
}
