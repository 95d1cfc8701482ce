// Whether files can be made in a directory, found out before a long preparation: its missing parents are made, and a
// directory and a file with names as long as any of ours are written, flushed and removed again.
//
// What was made and is still empty goes away with the object: a run that fails before it writes leaves nothing.
//
// Errors: [rlalgo.core.1] with the system's reason: a file in the way, no permission, a read-only or full disk, a name
// that is too long; [rlalgo.run.3] another run is writing there.
#pragma once

#include <unistd.h>

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
  // Part by part as the system walks it: `..` behind a link is not the part before.
  void make(const std::filesystem::path& directory) {
    std::filesystem::path at;
    std::error_code error;
    for (const auto& part : std::filesystem::absolute(directory)) {
      at /= part;
      if (part.empty() || std::filesystem::exists(std::filesystem::symlink_status(at, error))) continue;
      if (std::filesystem::create_directory(at, error)) made_.push_back(at);
      if (error) core::raise_file_error("cannot create the directory", at, error.value());
    }
    if (!std::filesystem::is_directory(directory, error))
      core::raise_file_error("cannot create the directory", directory, error ? error.value() : ENOTDIR);
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
