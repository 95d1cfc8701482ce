// Directories that appear whole or not at all, and files that grow by whole pieces.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::run::detail {

namespace fs = std::filesystem;

inline void sync_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) os::raise_file_error("cannot open the file", path, errno);
  const int failed = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  if (failed != 0) os::raise_file_error("cannot flush the file", path, failed);
}

// fsync of every file and directory below `directory`, and of itself.
inline void sync_tree(const fs::path& directory) {
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file())
      sync_file(entry.path());
    else if (entry.is_directory())
      os::AtomicFile::sync_directory(entry.path());
  }
  os::AtomicFile::sync_directory(directory);
}

// The bytes of `from` under the name `to`, atomically; false when there is no `from`.
inline bool copy_whole_file(const fs::path& from, const fs::path& to) {
  const os::RegularFile in(from);
  if (in.absent()) return false;
  os::require_open(in, from);
  os::AtomicFile out(to);
  const int failed = os::read_pieces(in, [&](std::string_view piece) { out.write(piece.data(), piece.size()); });
  if (failed != 0) os::raise_file_error("cannot read the file", from, failed);
  out.commit();
  return true;
}

inline void make_directory(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) os::raise_file_error("cannot create the directory", directory, error.value());
}

// A directory and those above it that are not there, made part by part as the system walks them: `..` behind a link is not the
// part before. remove() takes those away again that were made and are empty.
class MadeDirectories {
 public:
  explicit MadeDirectories(const fs::path& directory) {
    fs::path at;
    std::error_code error;
    for (const auto& part : fs::absolute(directory)) {
      at /= part;
      if (part.empty() || fs::exists(fs::symlink_status(at, error))) continue;
      if (fs::create_directory(at, error)) made_.push_back(at);
      if (error) fail("cannot create the directory", at, error.value());
    }
    if (!fs::is_directory(directory, error))
      fail("cannot create the directory", directory, error ? error.value() : ENOTDIR);
  }

  void remove() noexcept {
    for (auto one = made_.rbegin(); one != made_.rend(); ++one) ::rmdir(one->c_str());
    made_.clear();
  }

 private:
  [[noreturn]] void fail(const char* what, const fs::path& path, int error) {
    remove();
    os::raise_file_error(what, path, error);
  }

  std::vector<fs::path> made_;  // outermost first
};

// Removes what may be removed; a name that survives is harmless (it is never read) and is tried again by the next run.
inline void remove_leftover(const fs::path& path) noexcept {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// Removes a file that would be read; none there is well.
inline void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) os::raise_file_error("cannot remove the file", path, error.value());
}

// A directory under construction, named `.<name>.tmp` beside its place. commit() makes it visible under its name,
// durably, in one rename; a destroyed, uncommitted directory leaves nothing.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(fs::path path)
      : path_(std::move(path)), temporary_(path_.parent_path() / ("." + path_.filename().string() + ".tmp")) {
    remove_leftover(temporary_);
    make_directory(temporary_);
  }
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;
  ~AtomicDirectory() {
    if (!committed_) remove_leftover(temporary_);
  }

  [[nodiscard]] const fs::path& building() const noexcept { return temporary_; }

  void commit() {
    sync_tree(temporary_);
    if (fs::exists(path_)) {
      exchange();
    } else if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
      os::raise_file_error("cannot rename the directory", path_, errno);
    }
    committed_ = true;
    os::AtomicFile::sync_directory(path_.parent_path());
  }

 private:
  // Replaces an existing directory: in one system call where the file system can, else by moving the old one away
  // first.
  void exchange() {
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
      const fs::path old = path_.parent_path() / ("." + path_.filename().string() + ".old.tmp");
      remove_leftover(old);
      if (::rename(path_.c_str(), old.c_str()) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0)
        os::raise_file_error("cannot rename the directory", path_, errno);
      remove_leftover(old);
    } else {
      remove_leftover(temporary_);
    }
  }
  fs::path path_;
  fs::path temporary_;
  bool committed_ = false;
};

// A file that grows by whole pieces. A piece is appended by one write(2); when the disk is full the file is cut back to
// its last whole piece before the error is raised. Where its directory is taken away, what it held is written anew.
class ByteFile {
 public:
  explicit ByteFile(fs::path path) : path_(std::move(path)) {}
  ByteFile(const ByteFile&) = delete;
  ByteFile& operator=(const ByteFile&) = delete;
  ~ByteFile() { close(); }

  [[nodiscard]] const fs::path& path() const noexcept { return path_; }

  // Replaces the content, atomically.
  void replace(std::string_view content) {
    close();
    os::write_file(path_, content);
    open();
  }

  // Replaces the content by that of another file, atomically; an empty one when there is no such file.
  void replace_by(const fs::path& other) {
    close();
    if (!copy_whole_file(other, path_)) os::write_file(path_, "");
    open();
  }

  // Whether the file was deleted, or moved away, since it was opened.
  [[nodiscard]] bool gone() const {
    struct stat found {};
    return kept_ >= 0 && ::stat(path_.c_str(), &found) != 0 && (errno == ENOENT || errno == ENOTDIR);
  }
  // Writes a file that is gone anew, with what it held: an open file keeps it.
  void bring_back() {
    if (!gone()) return;
    std::string content;
    char piece[65536];
    for (ssize_t n = 0; (n = ::pread(kept_, piece, sizeof piece, static_cast<off_t>(content.size()))) != 0;) {
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) os::raise_file_error("cannot read what the file held", path_, errno);
      content.append(piece, static_cast<std::size_t>(n));
    }
    close();
    make_directory(path_.parent_path());
    os::write_file(path_, content);
    open();
  }

  void append(std::string_view piece) {
    bring_back();
    open();
    const off_t before = ::lseek(descriptor_, 0, SEEK_END);
    while (!piece.empty()) {
      const ssize_t n = ::write(descriptor_, piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const int error = errno;
        if (::ftruncate(descriptor_, before) != 0) os::raise_file_error("cannot cut back the file", path_, errno);
        os::raise_file_error("cannot append to the file", path_, error);
      }
      piece.remove_prefix(static_cast<std::size_t>(n));
    }
  }

 private:
  void open() {
    if (descriptor_ >= 0) return;
    // A FIFO without a reader is an error (O_NONBLOCK), not a wait.
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644);
    if (descriptor_ < 0) os::raise_file_error("cannot open the file", path_, errno);
    kept_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  }
  void close() noexcept {
    for (int* const each : {&descriptor_, &kept_}) {
      if (*each >= 0) ::close(*each);
      *each = -1;
    }
  }
  fs::path path_;
  int descriptor_ = -1;
  int kept_ = -1;  // the same file, to be read
};

}  // namespace rlalgo::run::detail
