// Tokenized preference data, and reference log-probs, on disk: prepared once, read again by later runs.
//
//   file = "rlalgo answers 5\n" · key · arrays (a count of 8 bytes, then the elements, padded to 8 bytes) · digest
//
// Neither side holds the ids in memory: they are written through a buffer and read by mapping the file.
//
// A file is used only when its key is the one asked for (what the data was made from) and its digest fits its bytes:
// anything else is a miss, and a file that is damaged is reported. The digest is XXH64 (core/digest.hpp): it finds accidents,
// not forgeries. Numbers are in the byte order of the machine.
//
// Errors: [rlalgo.data.27] a file with the right key whose bytes are damaged; [rlalgo.os.1] it cannot be written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/digest.hpp>
#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/os/atomic_file.hpp>

namespace rlalgo::data {

// The name of a file and its bytes; the name alone where it cannot be read.
void add_file(core::Digest& digest, const std::filesystem::path& path);

// What the answers are: their tokens and labels.
[[nodiscard]] std::string identity_of(const AnswerSet& set);

namespace detail {

inline constexpr std::size_t digest_block = std::size_t{1} << 20U;

[[nodiscard]] inline std::size_t padding_to_8(std::size_t size) { return (8 - size % 8) % 8; }

[[nodiscard]] std::string keyed_head(const std::string& key);

// Arrays into a file that appears when it is complete.
class KeyedWriter {
 public:
  KeyedWriter(const std::filesystem::path& path, const std::string& key);

  // An array of `count` elements whose bytes follow by put_bytes().
  void begin_array(std::uint64_t count) { put_bytes(&count, sizeof count); }
  void put_bytes(const void* data, std::size_t size);
  void end_array() { put_bytes("\0\0\0\0\0\0\0", padding_to_8(size_)); }
  template <class T>
  void put_array(std::span<const T> values) {
    begin_array(values.size());
    put_bytes(values.data(), values.size_bytes());
    end_array();
  }
  void commit();

 private:
  static const std::filesystem::path& made(const std::filesystem::path& path);
  void flush();

  os::AtomicFile file_;
  std::string block_;
  core::Digest digest_;
  std::size_t size_ = 0;
};

// The arrays of a file whose key is `key`.
class KeyedReader {
 public:
  // Nothing when there is no such file or it has another key.
  static std::optional<KeyedReader> open(const std::filesystem::path& path, const std::string& key);

  // The place of the next array; false when the rest is too short for it.
  template <class T>
  bool next(std::size_t& offset, std::size_t& count) {
    std::uint64_t n = 0;
    if (end_ - at_ < sizeof n) return false;
    std::memcpy(&n, file_->bytes().data() + at_, sizeof n);
    if (n > (end_ - at_ - sizeof n) / sizeof(T)) return false;
    offset = at_ + sizeof n;
    count = n;
    at_ = std::min(end_, offset + n * sizeof(T) + padding_to_8(n * sizeof(T)));
    return true;
  }
  template <class T>
  bool get_array(std::vector<T>& values) {
    std::size_t offset = 0, count = 0;
    if (!next<T>(offset, count)) return false;
    values.resize(count);
    if (count > 0) std::memcpy(values.data(), file_->bytes().data() + offset, count * sizeof(T));
    return true;
  }
  [[nodiscard]] bool done() const { return at_ == end_; }
  [[nodiscard]] const std::shared_ptr<MappedFile>& file() const { return file_; }

 private:
  std::shared_ptr<MappedFile> file_;
  std::size_t at_ = 0, end_ = 0;
};

void put_answers(KeyedWriter& out, const AnswerSet& set);

bool get_answers(KeyedReader& in, AnswerSet& set);

}  // namespace detail

// Tokenized answers with notes for the user, as they were printed when they were made.
struct PreparedAnswers {
  AnswerSet train, evaluation;  // evaluation empty: none
  std::vector<std::string> notes;
  std::string outside = {};  // what they may have read of the world around them, as JSON; empty: not known
};

void write_prepared(const std::filesystem::path& path, const std::string& key, const PreparedAnswers& prepared);

[[nodiscard]] std::optional<PreparedAnswers> read_prepared(const std::filesystem::path& path, const std::string& key);

// Reference log-probs of a set: one column, or two with those of mismatched completions.
struct ReferenceColumns {
  std::vector<double> rows, mismatched;
};

void write_reference(const std::filesystem::path& path, const std::string& key, const ReferenceColumns& columns);

[[nodiscard]] std::optional<ReferenceColumns> read_reference(const std::filesystem::path& path, const std::string& key,
                                                             std::size_t answers);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/answer_file_impl.hpp>
#endif
