// Definitions of id_arena.hpp.
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

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/id_arena.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::data {

RLALGO_INLINE std::shared_ptr<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const os::RegularFile file(path);
  if (!file.problem().empty()) return nullptr;
  auto out = std::shared_ptr<MappedFile>(new MappedFile());
  const std::size_t size = file.size();
  if (size == 0) return out;
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (map == MAP_FAILED) os::raise_file_error("cannot map the file", path, errno);
  out->bytes_ = {static_cast<const char*>(map), size};
  return out;
}

RLALGO_INLINE MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

RLALGO_INLINE void MappedFile::release() const noexcept {
  if (!bytes_.empty()) ::madvise(const_cast<char*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

RLALGO_INLINE IdArena::IdArena(std::shared_ptr<MappedFile> file, std::size_t offset, std::size_t count)
    : mapped_(std::move(file)),
      size_(count),
      fixed_(reinterpret_cast<const TokenId*>(mapped_->bytes().data() + offset)) {}

RLALGO_INLINE IdArena::~IdArena() {
  if (map_ != nullptr) ::munmap(map_, capacity_ * sizeof(TokenId));
  if (descriptor_ >= 0) ::close(descriptor_);
}

RLALGO_INLINE const TokenId* IdArena::data() const noexcept {
  return fixed_ != nullptr ? fixed_ : map_ != nullptr ? map_ : memory_.data();
}

RLALGO_INLINE std::span<const TokenId> IdArena::span(std::size_t begin, std::size_t count) const {
  return {data() + begin, count};
}

RLALGO_INLINE void IdArena::append(std::span<const TokenId> ids) {
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

RLALGO_INLINE void IdArena::move_to_disk() {
  std::filesystem::create_directories(config_.directory);
  std::string name = (config_.directory / ".answers-XXXXXX").string();
  descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail("cannot make the file of token ids");
  ::unlink(name.c_str());
  reserve(std::max<std::size_t>(2 * memory_.size(), step));
  std::copy(memory_.begin(), memory_.end(), map_);
  memory_ = {};
}

RLALGO_INLINE void IdArena::reserve(std::size_t ids) {
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

RLALGO_INLINE void IdArena::let_go() {
  ::madvise(map_, capacity_ * sizeof(TokenId), MADV_DONTNEED);  // of a shared mapping: the file keeps the bytes
  released_ = size_;
}

}  // namespace rlalgo::data
