// Whether files can be made in a directory, found out before a long preparation: its missing parents are made, and a
// directory and a file with names as long as any of ours are written, flushed and removed again.
//
// What was made and is still empty goes away with the object: a run that fails before it writes leaves nothing.
//
// Errors: [rlalgo.core.1] with the system's reason: a file in the way, no permission, a read-only or full disk, a name
// that is too long; [rlalgo.run.3] another run is writing there.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/detail/output_lock.hpp>

namespace rlalgo::run {

class OutputTrial {
 public:
  explicit OutputTrial(const std::filesystem::path& directory) {
    if (directory.empty()) core::raise_file_error("cannot create the directory", directory, ENOENT);
    try {
      make(directory);
      { const detail::OutputLock nobody_else(directory); }
      write(directory);
    } catch (...) {
      remove_empty();
      throw;
    }
  }
  OutputTrial(const OutputTrial&) = delete;
  OutputTrial& operator=(const OutputTrial&) = delete;
  ~OutputTrial() { remove_empty(); }

 private:
  void make(const std::filesystem::path& directory) {
    std::vector<std::filesystem::path> missing;
    std::error_code unknown;
    for (auto at = std::filesystem::absolute(directory).lexically_normal();
         !std::filesystem::exists(std::filesystem::symlink_status(at, unknown)) && at.has_relative_path();
         at = at.parent_path())
      missing.push_back(at);
    std::reverse(missing.begin(), missing.end());
    for (const auto& one : missing) {
      std::error_code error;
      if (std::filesystem::create_directory(one, error)) made_.push_back(one);
      if (error) core::raise_file_error("cannot create the directory", one, error.value());
    }
    if (!std::filesystem::is_directory(directory, unknown))
      core::raise_file_error("cannot create the directory", directory, EEXIST);
  }

  // As deep and as long as a checkpoint's shard and TensorBoard's events.
  static void write(const std::filesystem::path& directory) {
    const std::string id = std::to_string(::getpid());
    const std::filesystem::path folder = directory / (".rlalgo-trial-" + id + "-" + std::string(70, 'x') + ".tmp");
    struct Removed {
      const std::filesystem::path& path;
      ~Removed() { detail::remove_leftover(path); }
    } const removed{folder};
    detail::make_directory(folder);
    core::AtomicFile file(folder / ("trial-" + std::string(110, 'x')));
    file.write(std::string(65536, ' '));
    file.commit();
  }

  void remove_empty() noexcept {
    for (auto one = made_.rbegin(); one != made_.rend(); ++one) ::rmdir(one->c_str());
    made_.clear();
  }

  std::vector<std::filesystem::path> made_;  // outermost first
};

}  // namespace rlalgo::run
