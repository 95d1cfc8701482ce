// Token ids end to end: in memory while they are few, in a memory-mapped file on disk when they are many.
//
// The file is made in `directory` when the ids pass `memory_bytes`, has no name from the start (nothing is left behind,
// however the process ends), and its pages are written out and let go as it grows, so that ids beyond the limit cost
// disk, not memory. Spans are valid until the next append, as those of a vector.
//
// Errors: [rlalgo.core.1] the file cannot be made or grow.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::data {

// A file's bytes, mapped for reading.
class MappedFile {
 public:
  // Nothing when the file cannot be opened.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return nullptr;
    const off_t size = ::lseek(descriptor, 0, SEEK_END);
    void* map =
        size > 0 ? ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_SHARED, descriptor, 0) : MAP_FAILED;
    const int error = errno;
    ::close(descriptor);
    if (size > 0 && map == MAP_FAILED) core::raise_file_error("cannot map the file", path, error);
    auto out = std::shared_ptr<MappedFile>(new MappedFile());
    if (size > 0) out->bytes_ = {static_cast<const char*>(map), static_cast<std::size_t>(size)};
    return out;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }

  [[nodiscard]] std::string_view bytes() const noexcept { return bytes_; }
  // Lets go of the memory of what was read so far; it is read again when it is asked for.
  void release() const noexcept {
    if (!bytes_.empty()) ::madvise(const_cast<char*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
  }

 private:
  MappedFile() = default;
  std::string_view bytes_;
};

struct ArenaConfig {
  std::filesystem::path directory = {};               // of the file; empty: all ids stay in memory
  std::size_t memory_bytes = std::size_t{64} << 20U;  // beyond this the ids go to the file
};

class IdArena {
 public:
  explicit IdArena(ArenaConfig config = {}) : config_(std::move(config)) {}
  // The ids that a file holds from byte `offset` (a multiple of 4) on; nothing can be appended.
  IdArena(std::shared_ptr<MappedFile> file, std::size_t offset, std::size_t count)
      : mapped_(std::move(file)),
        size_(count),
        fixed_(reinterpret_cast<const TokenId*>(mapped_->bytes().data() + offset)) {}
  IdArena(const IdArena&) = delete;
  IdArena& operator=(const IdArena&) = delete;
  ~IdArena() {
    if (map_ != nullptr) ::munmap(map_, capacity_ * sizeof(TokenId));
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] const TokenId* data() const noexcept {
    return fixed_ != nullptr ? fixed_ : map_ != nullptr ? map_ : memory_.data();
  }
  [[nodiscard]] std::span<const TokenId> span(std::size_t begin, std::size_t count) const {
    return {data() + begin, count};
  }
  [[nodiscard]] bool on_disk() const noexcept { return map_ != nullptr || mapped_ != nullptr; }

  void append(std::span<const TokenId> ids) {
    if (map_ == nullptr && !config_.directory.empty() && (size_ + ids.size()) * sizeof(TokenId) > config_.memory_bytes)
      move_to_disk();
    if (map_ == nullptr) {
      memory_.insert(memory_.end(), ids.begin(), ids.end());
      size_ = memory_.size();
      return;
    }
    if (size_ + ids.size() > capacity_) reserve(std::max(2 * capacity_, size_ + ids.size()));
    std::copy(ids.begin(), ids.end(), map_ + size_);
    size_ += ids.size();
    if (size_ - released_ >= step) let_go();
  }

 private:
  static constexpr std::size_t step = std::size_t{1} << 23U;  // ids between two releases of memory

  [[noreturn]] void fail(const std::string& what) const { core::raise_file_error(what, config_.directory, errno); }

  void move_to_disk() {
    std::filesystem::create_directories(config_.directory);
    std::string name = (config_.directory / ".answers-XXXXXX").string();
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) fail("cannot make the file of token ids");
    ::unlink(name.c_str());
    reserve(std::max<std::size_t>(2 * memory_.size(), step));
    std::copy(memory_.begin(), memory_.end(), map_);
    memory_ = {};
  }

  void reserve(std::size_t ids) {
    // Blocks are claimed now: a full disk is an error here, not a bus error at the first write.
    const int full = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(ids * sizeof(TokenId)));
    if (full != 0) {
      errno = full;
      fail("cannot grow the file of token ids");
    }
    if (map_ != nullptr) ::munmap(map_, capacity_ * sizeof(TokenId));
    void* map = ::mmap(nullptr, ids * sizeof(TokenId), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
    if (map == MAP_FAILED) {
      map_ = nullptr;
      fail("cannot map the file of token ids");
    }
    map_ = static_cast<TokenId*>(map);
    capacity_ = ids;
  }

  void let_go() {
    ::madvise(map_, capacity_ * sizeof(TokenId), MADV_DONTNEED);  // of a shared mapping: the file keeps the bytes
    released_ = size_;
  }

  ArenaConfig config_;
  std::vector<TokenId> memory_;
  std::shared_ptr<MappedFile> mapped_;
  std::size_t size_ = 0;
  const TokenId* fixed_ = nullptr;  // of mapped_
  int descriptor_ = -1;
  TokenId* map_ = nullptr;  // [capacity_]
  std::size_t capacity_ = 0, released_ = 0;
};

}  // namespace rlalgo::data
