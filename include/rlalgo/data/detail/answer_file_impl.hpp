// Definitions of answer_file.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/digest.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/answer_file.hpp>
#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/file_digest.hpp>

namespace rlalgo::data {

RLALGO_INLINE void add_file(core::Digest& digest, const std::filesystem::path& path) {
  digest.add(path.filename().string());
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) digest.add(os::file_digest(path));
}

RLALGO_INLINE std::string identity_of(const AnswerSet& set) {
  core::Digest digest;
  digest.add(std::to_string(set.per_example()));
  for (std::size_t i = 0; i < set.answers(); ++i) {
    const std::span<const TokenId> ids = set.ids(i);
    digest.add({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()})
        .add(std::to_string(set.completion(i).size()) + (set.desirable(i) ? "+" : "-"));
    if (set.rest(i) == 0) continue;
    const std::span<const TokenId> rest = set.whole_completion(i).last(set.rest(i));
    digest.add({reinterpret_cast<const char*>(rest.data()), rest.size_bytes()});
  }
  return digest.hex();
}

namespace detail {

RLALGO_INLINE std::string keyed_head(const std::string& key) {
  std::string head = "rlalgo answers 5\n" + key + "\n";
  return head + std::string(padding_to_8(head.size()), '\n');
}

RLALGO_INLINE void put_answers(KeyedWriter& out, const AnswerSet& set) {
  const auto column = [&](auto value_of) {
    out.begin_array(set.answers());
    for (std::size_t i = 0; i < set.answers(); ++i) {
      const auto value = value_of(i);
      out.put_bytes(&value, sizeof value);
    }
    out.end_array();
  };
  const std::uint64_t unit[] = {set.per_example()};
  out.put_array(std::span<const std::uint64_t>(unit));
  column([&](std::size_t i) { return set.row(i); });
  column([&](std::size_t i) { return set.tokens(i); });
  column([&](std::size_t i) { return static_cast<std::int64_t>(set.completion(i).size()); });
  column([&](std::size_t i) { return static_cast<std::uint8_t>(set.desirable(i) ? 1 : 0); });
  column([&](std::size_t i) { return static_cast<std::int64_t>(set.rest(i)); });
  std::size_t all = set.all_tokens();
  for (std::size_t i = 0; i < set.answers(); ++i) all += set.rest(i);
  out.begin_array(all);
  for (std::size_t i = 0; i < set.answers(); ++i) {
    const std::span<const TokenId> ids = set.ids(i), rest = set.whole_completion(i).last(set.rest(i));
    out.put_bytes(ids.data(), ids.size_bytes());
    out.put_bytes(rest.data(), rest.size_bytes());
  }
  out.end_array();
}

RLALGO_INLINE bool get_answers(KeyedReader& in, AnswerSet& set) {
  std::vector<std::uint64_t> unit;
  std::vector<std::int64_t> rows, lengths, completions, rests;
  std::vector<std::uint8_t> labels;
  std::size_t offset = 0, count = 0;
  if (!(in.get_array(unit) && unit.size() == 1 && in.get_array(rows) && in.get_array(lengths) &&
        in.get_array(completions) && in.get_array(labels) && in.get_array(rests) && in.next<TokenId>(offset, count)))
    return false;
  for (const std::size_t size : {lengths.size(), completions.size(), labels.size(), rests.size()})
    if (size != rows.size()) return false;
  set = AnswerSet(unit[0], std::make_shared<IdArena>(in.file(), offset, count));
  std::size_t at = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (completions[i] < 0 || lengths[i] < completions[i] || static_cast<std::size_t>(lengths[i]) > count - at ||
        rests[i] < 0 || static_cast<std::size_t>(rests[i]) > count - at - static_cast<std::size_t>(lengths[i]))
      return false;
    set.add(rows[i], labels[i] != 0, at, static_cast<std::size_t>(lengths[i] - completions[i]),
            static_cast<std::size_t>(completions[i]), static_cast<std::size_t>(rests[i]));
    at += static_cast<std::size_t>(lengths[i]) + static_cast<std::size_t>(rests[i]);
  }
  return true;
}

RLALGO_INLINE KeyedWriter::KeyedWriter(const std::filesystem::path& path, const std::string& key) : file_(made(path)) {
  file_.write(keyed_head(key));
}

RLALGO_INLINE void KeyedWriter::put_bytes(const void* data, std::size_t size) {
  const char* from = static_cast<const char*>(data);
  size_ += size;
  while (size > 0) {
    const std::size_t n = std::min(size, digest_block - block_.size());
    block_.append(from, n);
    from += n;
    size -= n;
    if (block_.size() == digest_block) flush();
  }
}

RLALGO_INLINE void KeyedWriter::commit() {
  if (!block_.empty()) flush();
  const std::uint64_t digest = digest_.value();
  file_.write(&digest, sizeof digest);
  file_.commit();
}

RLALGO_INLINE const std::filesystem::path& KeyedWriter::made(const std::filesystem::path& path) {
  std::filesystem::create_directories(path.parent_path());
  return path;
}

RLALGO_INLINE void KeyedWriter::flush() {
  digest_.add(block_);
  file_.write(block_);
  block_.clear();
}

RLALGO_INLINE std::optional<KeyedReader> KeyedReader::open(const std::filesystem::path& path, const std::string& key) {
  KeyedReader out;
  out.file_ = MappedFile::open(path);
  const std::string head = keyed_head(key);
  if (!out.file_ || !out.file_->bytes().starts_with(head)) return std::nullopt;
  const std::string_view bytes = out.file_->bytes();
  std::uint64_t stored = 0;
  core::Digest digest;
  const bool whole = bytes.size() >= head.size() + sizeof stored;
  if (whole) {
    std::memcpy(&stored, bytes.data() + bytes.size() - sizeof stored, sizeof stored);
    out.at_ = head.size();
    out.end_ = bytes.size() - sizeof stored;
    for (std::size_t at = out.at_; at < out.end_; at += digest_block) {
      digest.add(bytes.substr(at, std::min(digest_block, out.end_ - at)));
      if ((at / digest_block) % 64 == 63) out.file_->release();
    }
    out.file_->release();
  }
  if (!whole || stored != digest.value())
    core::raise("data", 27,
                {.what = "a prepared file is damaged",
                 .found = std::to_string(bytes.size()) + " bytes whose digest does not fit",
                 .where = path.string(),
                 .remedy = "delete it: it is made again"});
  return out;
}

}  // namespace detail

RLALGO_INLINE void write_prepared(const std::filesystem::path& path, const std::string& key,
                                  const PreparedAnswers& prepared) {
  detail::KeyedWriter out(path, key);
  detail::put_answers(out, prepared.train);
  detail::put_answers(out, prepared.evaluation);
  out.put_array(std::span<const char>(prepared.outside));
  for (const std::string& note : prepared.notes) out.put_array(std::span<const char>(note));
  out.commit();
}

RLALGO_INLINE std::optional<PreparedAnswers> read_prepared(const std::filesystem::path& path, const std::string& key) {
  auto in = detail::KeyedReader::open(path, key);
  if (!in) return std::nullopt;
  PreparedAnswers out;
  bool good = detail::get_answers(*in, out.train) && detail::get_answers(*in, out.evaluation);
  std::vector<char> outside;
  good = good && in->get_array(outside);
  out.outside.assign(outside.begin(), outside.end());
  while (good && !in->done()) {
    std::vector<char> text;
    good = in->get_array(text);
    out.notes.emplace_back(text.begin(), text.end());
  }
  if (!good)
    core::raise("data", 27,
                {.what = "a prepared file does not hold what it should",
                 .where = path.string(),
                 .remedy = "delete it: it is made again"});
  return out;
}

RLALGO_INLINE void write_reference(const std::filesystem::path& path, const std::string& key,
                                   const ReferenceColumns& columns) {
  detail::KeyedWriter out(path, key);
  out.put_array(std::span<const double>(columns.rows));
  out.put_array(std::span<const double>(columns.mismatched));
  out.commit();
}

RLALGO_INLINE std::optional<ReferenceColumns> read_reference(const std::filesystem::path& path, const std::string& key,
                                                             std::size_t answers) {
  auto in = detail::KeyedReader::open(path, key);
  if (!in) return std::nullopt;
  ReferenceColumns out;
  const bool good = in->get_array(out.rows) && in->get_array(out.mismatched) && in->done() &&
                    out.rows.size() == answers && (out.mismatched.empty() || out.mismatched.size() == answers);
  if (!good)
    core::raise("data", 27,
                {.what = "the reference log-probs on disk do not fit the data",
                 .found = std::to_string(out.rows.size()) + " log-probs, " + std::to_string(out.mismatched.size()) +
                          " of mismatched completions, " + (in->done() ? "and no more" : "and more bytes behind"),
                 .expected = std::to_string(answers) + " log-probs",
                 .where = path.string(),
                 .remedy = "delete the file: it is made again"});
  return out;
}

}  // namespace rlalgo::data
