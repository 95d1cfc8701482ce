// Files that appear whole or not at all: written beside their name, fsync'ed, renamed. A device, a named pipe or a
// directory is not replaced (a rename over /dev/null would take it from the whole machine).
//
// Errors: [rlalgo.os.1] cannot open or write (the errno text says why: no space left, permission, …), with the path.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::os {

[[noreturn]] inline void raise_file_error(const std::string& what, const std::filesystem::path& path, int error) {
  core::raise("os", 1,
              {.what = what,
               .found = std::strerror(error),
               .where = path.string(),
               .remedy = error == ENOSPC ? "free disk space or choose another output_dir"
                                         : "check the path and its permissions"});
}

// A file under construction. Nothing exists under `path` until commit(); a destroyed, uncommitted file leaves nothing.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path)
      : path_(std::move(path)), temporary_(path_.string() + ".tmp." + std::to_string(::getpid())) {
    struct stat there {};
    if (::stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
      core::raise("os", 1,
                  {.what = "what is there cannot be replaced by a file",
                   .found = detail::kind_of_file(there.st_mode),
                   .where = path_.string(),
                   .remedy = "remove it, or choose another place"});
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) raise_file_error("cannot create the file", path_, errno);
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile() { discard(); }

  void write(const void* data, std::size_t bytes) {
    const char* p = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(descriptor_, p, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) raise_file_error("cannot write the file", path_, errno);
      p += n;
      bytes -= static_cast<std::size_t>(n);
    }
  }
  void write(std::string_view text) { write(text.data(), text.size()); }

  // Makes the file visible under its name, durably.
  void commit() {
    if (::fsync(descriptor_) != 0) raise_file_error("cannot flush the file", path_, errno);
    const int closed = ::close(std::exchange(descriptor_, -1));
    if (closed != 0) raise_file_error("cannot close the file", path_, errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) raise_file_error("cannot rename the file", path_, errno);
    temporary_.clear();
    sync_directory(path_.parent_path());
  }

  // fsync of a directory, so that a rename inside it survives a crash.
  static void sync_directory(const std::filesystem::path& directory) {
    const int fd = ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) raise_file_error("cannot open the directory", directory, errno);
    ::fsync(fd);
    ::close(fd);
  }

 private:
  void discard() noexcept {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
    temporary_.clear();
  }
  std::filesystem::path path_;
  std::string temporary_;
  int descriptor_ = -1;
};

inline void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace rlalgo::os
