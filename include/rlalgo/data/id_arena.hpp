// Token ids end to end: in memory while they are few, in a memory-mapped file on disk when they are many.
//
// The file is made in `directory` when the ids pass `memory_bytes`, has no name from the start (nothing is left behind,
// however the process ends), and its pages are written out and let go as it grows, so that ids beyond the limit cost
// disk, not memory. Spans are valid until the next append, as those of a vector.
//
// Errors: [rlalgo.os.1] the file cannot be made or grow.
#pragma once

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/os/atomic_file.hpp>

namespace rlalgo::data {

// A file's bytes, mapped for reading.
class MappedFile {
 public:
  // Nothing when the file cannot be opened.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::string_view bytes() const noexcept { return bytes_; }
  // Lets go of the memory of what was read so far; it is read again when it is asked for.
  void release() const noexcept;

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
  IdArena(std::shared_ptr<MappedFile> file, std::size_t offset, std::size_t count);
  IdArena(const IdArena&) = delete;
  IdArena& operator=(const IdArena&) = delete;
  ~IdArena();

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] const TokenId* data() const noexcept;
  [[nodiscard]] std::span<const TokenId> span(std::size_t begin, std::size_t count) const;
  [[nodiscard]] bool on_disk() const noexcept { return map_ != nullptr || mapped_ != nullptr; }

  void append(std::span<const TokenId> ids);

 private:
  static constexpr std::size_t step = std::size_t{1} << 23U;  // ids between two releases of memory

  [[noreturn]] void fail(const std::string& what) const { os::raise_file_error(what, config_.directory, errno); }

  void move_to_disk();

  void reserve(std::size_t ids);

  void let_go();

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

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/id_arena_impl.hpp>
#endif
