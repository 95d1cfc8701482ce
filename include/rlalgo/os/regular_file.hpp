// Files that a user names, opened for reading: regular files only, so that nothing is waited for and nothing is without
// end. A FIFO, a socket, a device or a directory is known by looking, before it is opened.
//
// Errors: [rlalgo.os.1] a file that cannot be opened (require_open); [rlalgo.os.7] whether a path exists cannot be found out (a loop of symbolic links, a name too long, a
// directory that may not be entered).
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <rlalgo/core/error.hpp>

namespace rlalgo::os {

namespace detail {

[[nodiscard]] inline std::string kind_of_file(mode_t mode) {
  const char* kind = S_ISDIR(mode)                    ? "a directory"
                     : S_ISFIFO(mode)                 ? "a named pipe"
                     : S_ISSOCK(mode)                 ? "a socket"
                     : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                                      : "something else";
  return std::string(kind) + ", not a regular file";
}

}  // namespace detail

class RegularFile {
 public:
  explicit RegularFile(const std::filesystem::path& path) {
    struct stat status {};
    if (!accept(::stat(path.c_str(), &status), status)) return;
    // Were it exchanged for a FIFO in between, O_NONBLOCK would not wait for its writer.
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (!accept(descriptor_ < 0 ? -1 : ::fstat(descriptor_, &status), status)) {
      close();
      return;
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  ~RegularFile() { close(); }

  // Why it is not open; empty: it is.
  [[nodiscard]] const std::string& problem() const noexcept { return problem_; }
  [[nodiscard]] bool absent() const noexcept { return error_ == ENOENT || error_ == ENOTDIR; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  // The descriptor; from here on the caller closes it.
  [[nodiscard]] int release() noexcept { return std::exchange(descriptor_, -1); }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }  // bytes, when it was opened

 private:
  bool accept(int result, const struct stat& status) {
    if (result != 0)
      problem_ = std::strerror(error_ = errno);
    else if (!S_ISREG(status.st_mode))
      problem_ = detail::kind_of_file(status.st_mode);
    return problem_.empty();
  }
  void close() noexcept {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  int descriptor_ = -1;
  int error_ = 0;
  std::uint64_t size_ = 0;
  std::string problem_;
};

inline void require_open(const RegularFile& file, const std::filesystem::path& path) {
  if (!file.problem().empty())
    core::raise("os", 1,
                {.what = "cannot open the file",
                 .found = file.problem(),
                 .where = path.string(),
                 .remedy = "check the path and its permissions"});
}

// Hands all bytes of an open file to `take`, in order, a megabyte at a time. 0, or the errno of what stopped it.
template <class Take>
[[nodiscard]] int read_pieces(const RegularFile& file, Take&& take) {
  std::string piece(std::size_t{1} << 20U, '\0');
  for (;;) {
    const ssize_t n = ::read(file.descriptor(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : 0;
    take(std::string_view(piece.data(), static_cast<std::size_t>(n)));
  }
}

struct FileText {
  std::string text;
  std::string problem;  // why it could not be read; empty: it was
  bool absent = false;  // because there is none
};

// The bytes of a regular file of at most `most` bytes.
[[nodiscard]] inline FileText read_regular_file(const std::filesystem::path& path, std::uint64_t most) {
  const RegularFile file(path);
  FileText out{.text = {}, .problem = file.problem(), .absent = file.absent()};
  if (!out.problem.empty()) return out;
  const auto too_large = [&] {
    out.text.clear();
    out.problem = "a file of more than " + std::to_string(most) + " bytes";
  };
  if (file.size() > most) {
    too_large();
    return out;
  }
  constexpr std::size_t least = 4096;  // files of /proc have no size
  for (std::size_t filled = 0;;) {
    if (filled == out.text.size()) out.text.resize(std::max<std::size_t>(file.size() + 1, filled + least));
    const ssize_t n = ::read(file.descriptor(), out.text.data() + filled, out.text.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) out.problem = std::strerror(errno);
    filled += n > 0 ? static_cast<std::size_t>(n) : 0;
    if (n <= 0) {
      out.text.resize(out.problem.empty() ? filled : 0);
      return out;
    }
    if (filled > most) {
      too_large();
      return out;
    }
  }
}

// What is at `path`; `not_found` where nothing is. A dangling link is nothing.
[[nodiscard]] inline std::filesystem::file_type type_of(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() != std::filesystem::file_type::none) return status.type();
  core::raise("os", 7,
              {.what = "a path cannot be looked at",
               .found = error.message(),
               .where = path.string(),
               .remedy = "check the links and permissions on the way to it"});
}
[[nodiscard]] inline bool exists(const std::filesystem::path& path) {
  return type_of(path) != std::filesystem::file_type::not_found;
}
[[nodiscard]] inline bool is_directory(const std::filesystem::path& path) {
  return type_of(path) == std::filesystem::file_type::directory;
}
[[nodiscard]] inline bool is_regular_file(const std::filesystem::path& path) {
  return type_of(path) == std::filesystem::file_type::regular;
}

}  // namespace rlalgo::os
