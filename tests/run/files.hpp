// Temporary directories, files as text, child processes and error numbers for the tests of this room.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>

#include <rlalgo/core/error.hpp>

namespace fake {

namespace fs = std::filesystem;

struct TempDir {
  fs::path path;
  TempDir() {
    // In memory where there is such a place: the runs flush every file to disk.
    const fs::path base = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string name = (base / "rlalgo_trainer_XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() { fs::remove_all(path); }
};

inline std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Every file below `directory`: relative name → content.
inline std::map<std::string, std::string> tree(const fs::path& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) out[entry.path().lexically_relative(directory).string()] = read(entry.path());
  return out;
}

// Runs `work` in a child process; returns its wait status.
inline int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = work();
    } catch (...) {
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// The error that `work` raises, as "room.number"; "none" when it raises none.
inline std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const rlalgo::core::Error& error) {
    return error.room() + "." + std::to_string(error.number());
  }
  return "none";
}

}  // namespace fake
