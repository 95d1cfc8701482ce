// Tokenized preference data, and reference log-probs, on disk: prepared once, read again by later runs.
//
//   file = "rlalgo answers 1\n" · key · sizes · entries · ids · reference columns · digest
//
// A file is used only when its key is the one asked for (what the data was made from) and its digest fits its bytes:
// anything else is a miss, and a file that is damaged is reported. The digest is 64-bit FNV-1a over 8-byte words: it
// finds accidents, not forgeries. Numbers are in the byte order of the machine.
//
// Errors: [rlalgo.data.27] a file with the right key whose bytes are damaged; [rlalgo.core.1] it cannot be written.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/answer_set.hpp>

namespace rlalgo::data {

// A running 64-bit digest.
class Digest {
 public:
  Digest& add(std::string_view bytes) {
    std::size_t i = 0;
    for (; i + 8 <= bytes.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, 8);
      mix(word);
    }
    std::uint64_t tail = bytes.size();
    if (i < bytes.size()) std::memcpy(&tail, bytes.data() + i, bytes.size() - i);
    mix(tail);
    mix(bytes.size());
    return *this;
  }
  template <class T>
  Digest& add_all(const std::vector<T>& values) {
    return add({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }
  [[nodiscard]] std::string hex() const {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out(16, '0');
    for (int i = 0; i < 16; ++i) out[static_cast<std::size_t>(i)] = digits[(value_ >> (60 - 4 * i)) & 15U];
    return out;
  }

 private:
  void mix(std::uint64_t word) {
    value_ = (value_ ^ word) * 1099511628211ULL;
    value_ ^= value_ >> 29;
  }
  std::uint64_t value_ = 14695981039346656037ULL;
};

// Digest of a file's bytes, read in pieces; of its name and size where it cannot be read.
inline void add_file(Digest& digest, const std::filesystem::path& path) {
  digest.add(path.filename().string());
  std::ifstream in(path, std::ios::binary);
  std::string piece(std::size_t{1} << 20, '\0');
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())) || in.gcount() > 0)
    digest.add(std::string_view(piece).substr(0, static_cast<std::size_t>(in.gcount())));
}

// What the answers are: their tokens and labels.
[[nodiscard]] inline std::string identity_of(const AnswerSet& set) {
  Digest digest;
  digest.add(std::to_string(set.per_example())).add_all(set.ids());
  for (std::size_t i = 0; i < set.answers(); ++i)
    digest.add(std::to_string(set.tokens(i)) + (set.desirable(i) ? "+" : "-") +
               std::to_string(set.completion(i).size()));
  return digest.hex();
}

namespace detail {

inline constexpr std::string_view answer_magic = "rlalgo answers 1\n";

class ByteWriter {
 public:
  template <class T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class T>
  void put_all(const std::vector<T>& values) {
    put(static_cast<std::uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  [[nodiscard]] std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  bool get(T& value) {
    if (bytes_.size() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return true;
  }
  template <class T>
  bool get_all(std::vector<T>& values) {
    std::uint64_t size = 0;
    if (!get(size) || size > bytes_.size() / sizeof(T)) return false;
    values.resize(size);
    if (size > 0) std::memcpy(values.data(), bytes_.data(), size * sizeof(T));
    bytes_.remove_prefix(size * sizeof(T));
    return true;
  }
  [[nodiscard]] bool done() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

inline std::vector<char> characters(const std::string& text) { return {text.begin(), text.end()}; }

// The payload of a file whose key is `key`; none when there is no such file or it has another key.
inline std::optional<std::string> read_keyed(const std::filesystem::path& path, const std::string& key) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::string head = std::string(answer_magic) + key + "\n";
  if (!bytes.starts_with(head)) return std::nullopt;
  std::uint64_t stored = 0;
  const bool whole = bytes.size() >= head.size() + 8;
  if (whole) std::memcpy(&stored, bytes.data() + bytes.size() - 8, 8);
  const std::string_view payload =
      whole ? std::string_view(bytes).substr(head.size(), bytes.size() - head.size() - 8) : std::string_view();
  if (!whole || stored != Digest().add(payload).value())
    core::raise("data", 27,
                {.what = "a prepared file is damaged",
                 .found = std::to_string(bytes.size()) + " bytes whose digest does not fit",
                 .where = path.string(),
                 .remedy = "delete it: it is made again"});
  return std::string(payload);
}

inline void write_keyed(const std::filesystem::path& path, const std::string& key, const std::string& payload) {
  std::string bytes = std::string(answer_magic) + key + "\n" + payload;
  const std::uint64_t digest = Digest().add(payload).value();
  bytes.append(reinterpret_cast<const char*>(&digest), 8);
  std::filesystem::create_directories(path.parent_path());
  core::write_file(path, bytes);
}

}  // namespace detail

// Tokenized answers with notes for the user, as they were printed when they were made.
struct PreparedAnswers {
  AnswerSet train, evaluation;  // evaluation empty: none
  std::vector<std::string> notes;
};

inline void write_prepared(const std::filesystem::path& path, const std::string& key, const PreparedAnswers& prepared) {
  detail::ByteWriter out;
  for (const AnswerSet* set : {&prepared.train, &prepared.evaluation}) {
    out.put(static_cast<std::uint64_t>(set->per_example()));
    std::vector<std::int64_t> rows, prompts, lengths;
    std::vector<std::uint8_t> labels;
    for (std::size_t i = 0; i < set->answers(); ++i) {
      rows.push_back(set->row(i));
      lengths.push_back(set->tokens(i));
      prompts.push_back(set->tokens(i) - static_cast<std::int64_t>(set->completion(i).size()));
      labels.push_back(set->desirable(i) ? 1 : 0);
    }
    out.put_all(rows);
    out.put_all(lengths);
    out.put_all(prompts);
    out.put_all(labels);
    out.put_all(set->ids());
  }
  out.put(static_cast<std::uint64_t>(prepared.notes.size()));
  for (const std::string& note : prepared.notes) out.put_all(detail::characters(note));
  detail::write_keyed(path, key, out.bytes());
}

[[nodiscard]] inline std::optional<PreparedAnswers> read_prepared(const std::filesystem::path& path,
                                                                  const std::string& key) {
  const auto payload = detail::read_keyed(path, key);
  if (!payload) return std::nullopt;
  detail::ByteReader in(*payload);
  PreparedAnswers out;
  bool good = true;
  for (AnswerSet* set : {&out.train, &out.evaluation}) {
    std::uint64_t per_example = 2;
    std::vector<std::int64_t> rows, lengths, prompts;
    std::vector<std::uint8_t> labels;
    std::vector<TokenId> ids;
    good = good && in.get(per_example) && in.get_all(rows) && in.get_all(lengths) && in.get_all(prompts) &&
           in.get_all(labels) && in.get_all(ids);
    if (!good) break;
    *set = AnswerSet(per_example);
    std::size_t at = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto answer = std::span(ids).subspan(at, static_cast<std::size_t>(lengths[i]));
      const auto prompt = static_cast<std::size_t>(prompts[i]);
      set->append(rows[i], labels[i] != 0, answer.first(prompt), answer.subspan(prompt));
      at += answer.size();
    }
  }
  std::uint64_t notes = 0;
  good = good && in.get(notes);
  for (std::uint64_t n = 0; good && n < notes; ++n) {
    std::vector<char> text;
    good = in.get_all(text);
    out.notes.emplace_back(text.begin(), text.end());
  }
  if (!good || !in.done())
    core::raise("data", 27,
                {.what = "a prepared file does not hold what it should",
                 .where = path.string(),
                 .remedy = "delete it: it is made again"});
  return out;
}

// Reference log-probs of a set: one column, or two with those of mismatched completions.
struct ReferenceColumns {
  std::vector<double> rows, mismatched;
};

inline void write_reference(const std::filesystem::path& path, const std::string& key,
                            const ReferenceColumns& columns) {
  detail::ByteWriter out;
  out.put_all(columns.rows);
  out.put_all(columns.mismatched);
  detail::write_keyed(path, key, out.bytes());
}

[[nodiscard]] inline std::optional<ReferenceColumns> read_reference(const std::filesystem::path& path,
                                                                    const std::string& key, std::size_t answers) {
  const auto payload = detail::read_keyed(path, key);
  if (!payload) return std::nullopt;
  detail::ByteReader in(*payload);
  ReferenceColumns out;
  const bool good = in.get_all(out.rows) && in.get_all(out.mismatched) && in.done() && out.rows.size() == answers &&
                    (out.mismatched.empty() || out.mismatched.size() == answers);
  if (!good)
    core::raise("data", 27,
                {.what = "the reference log-probs on disk do not fit the data",
                 .found = std::to_string(out.rows.size()) + " numbers",
                 .expected = std::to_string(answers),
                 .where = path.string(),
                 .remedy = "delete the file: it is made again"});
  return out;
}

}  // namespace rlalgo::data
