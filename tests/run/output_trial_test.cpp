#include <rlalgo/run/output_trial.hpp>

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <support/catch.hpp>
#include <support/not_run.hpp>

#include "run/files.hpp"

using rlalgo::run::OutputTrial;
namespace fs = std::filesystem;

namespace {

std::string error_of(const fs::path& directory) {
  return fake::error_of([&] { const OutputTrial trial(directory); });
}

constexpr int cannot_try = 77;

}  // namespace

TEST_CASE("a directory is made, and goes away while nothing was written") {
  const fake::TempDir dir;
  {
    const OutputTrial trial(dir.path / "new" / "folder");
    CHECK(fs::is_directory(dir.path / "new" / "folder"));
    CHECK(fs::is_empty(dir.path / "new" / "folder"));
  }
  CHECK_FALSE(fs::exists(dir.path / "new"));
  {
    const OutputTrial trial(dir.path / "used");
    std::ofstream(dir.path / "used" / "file") << "x";
  }
  CHECK(fs::exists(dir.path / "used" / "file"));
  fs::create_directory(dir.path / "there");
  { const OutputTrial trial(dir.path / "there"); }
  CHECK(fs::exists(dir.path / "there"));  // it was there before
  CHECK(fs::is_empty(dir.path / "there"));
}

TEST_CASE("a path is walked as the system walks it") {
  const fake::TempDir dir;
  fs::create_directories(dir.path / "elsewhere" / "deep");
  fs::create_directory_symlink(dir.path / "elsewhere" / "deep", dir.path / "link");
  const OutputTrial trial(dir.path / "link" / ".." / "out" / "." / "");
  CHECK(fs::is_directory(dir.path / "elsewhere" / "out"));
  CHECK_FALSE(fs::exists(dir.path / "out"));
}

TEST_CASE("what cannot be a directory, or take files, is told, and nothing is left behind") {
  const fake::TempDir dir;
  std::ofstream(dir.path / "file") << "x";
  fs::create_symlink(dir.path / "nowhere", dir.path / "dangling");
  fs::create_symlink(dir.path / "loop", dir.path / "loop");
  CHECK(error_of("") == "os.1");
  CHECK(error_of(dir.path / "file") == "os.1");
  CHECK(error_of(dir.path / "file" / "out") == "os.1");
  CHECK(error_of(dir.path / "dangling") == "os.1");
  CHECK(error_of(dir.path / "loop" / "out") == "os.1");
  CHECK(error_of(dir.path / "made" / std::string(300, 'n')) == "os.1");  // a name
  CHECK_FALSE(fs::exists(dir.path / "made"));
  fs::path deep = dir.path;  // a path that exists, and is too long for what a run writes below it
  while (deep.string().size() < 3900) deep /= std::string(90, 'd');
  CHECK(error_of(deep) == "os.1");
  fs::remove(dir.path / "loop");
  CHECK(fake::tree(dir.path).size() == 1);
  CHECK(error_of("/proc/rlalgo") == "os.1");
}

TEST_CASE("a directory of somebody else") {
  const fake::TempDir dir;
  ::chmod(dir.path.c_str(), 0755);
  const int status = fake::in_child([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return cannot_try;
    if (::access(dir.path.c_str(), W_OK) == 0) return cannot_try;
    return error_of(dir.path) == "os.1" && error_of(dir.path / "out") == "os.1" ? 0 : 1;
  });
  rlalgo::support::needs(!WIFEXITED(status) || WEXITSTATUS(status) != cannot_try,
                         "not root: there is no directory of another user");
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a full device and a read-only one") {
  const fake::TempDir dir;
  const int status = fake::in_child([&] {
    // File systems in a mount namespace of this child's own.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", dir.path.c_str(), "tmpfs", 0, "size=40k") != 0)
      return cannot_try;
    if (error_of(dir.path / "out") != "os.1") return 1;
    if (!fs::is_empty(dir.path)) return 2;
    if (::mount(nullptr, dir.path.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) return cannot_try;
    return error_of(dir.path) == "os.1" && error_of(dir.path / "out") == "os.1" ? 0 : 3;
  });
  rlalgo::support::needs(!WIFEXITED(status) || WEXITSTATUS(status) != cannot_try,
                         "no permission to mount a small file system");
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("what has the name of a file that is written, and is none, is found out at once") {
  for (const char* name : {"model.safetensors", "config.json", "trainer_state.json", "metrics.jsonl", "runs"}) {
    const fake::TempDir dir;
    const bool folder = std::string(name) == "runs";
    const fs::path place = dir.path / name;
    std::ofstream(dir.path / "kept") << "x";
    fs::create_symlink("nowhere", place);
    CHECK(error_of(dir.path) == "none");
    fs::remove(place);
    fs::create_symlink("kept", place);
    CHECK(error_of(dir.path) == (folder ? "os.1" : "none"));
    fs::remove(place);
    fs::create_directory(place);
    CHECK(error_of(dir.path) == (folder ? "none" : "os.1"));
    fs::remove(place);
    REQUIRE(::mkfifo(place.c_str(), 0600) == 0);
    CHECK_THROWS_WITH(OutputTrial(dir.path), Catch::Contains(name) && Catch::Contains("or nothing"));
    fs::remove(place);
    CHECK(error_of(dir.path) == "none");
  }
}

TEST_CASE("a run that is writing there is not disturbed") {
  const fake::TempDir dir;
  const rlalgo::run::detail::OutputLock running(dir.path);
  CHECK(error_of(dir.path) == "run.3");
  CHECK_NOTHROW(OutputTrial(dir.path, OutputTrial::Others::may_write));
}
