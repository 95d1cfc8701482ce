// One run per output_dir: two would destroy each other's files.
//
// An advisory lock on the directory itself: no extra file, and the kernel releases it when the process ends in any way.
// A file system without locks (some network ones) answers with another errno and is used unlocked.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/atomic_file.hpp>

namespace rlalgo::run::detail {

class OutputLock {
 public:
  explicit OutputLock(const std::filesystem::path& directory)
      : descriptor_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0) os::raise_file_error("cannot open the directory", directory, errno);
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(descriptor_);
      core::raise("run", 3,
                  {.what = "another run is writing in output_dir",
                   .where = directory.string(),
                   .remedy = "wait for it, stop it, or choose another output_dir"});
    }
  }
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;
  ~OutputLock() { ::close(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace rlalgo::run::detail
