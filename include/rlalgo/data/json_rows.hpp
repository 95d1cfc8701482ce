// Reads files of JSON rows: one object per line, one array of objects, or objects one after another; and of text lines.
//
// UTF-8, an optional byte-order mark, gzip, empty lines allowed. Every row remembers its line, so that a later
// complaint about it can name it. `field` selects the array inside one top-level object ({"data": […]}). A file of one
// object per line is read line by line, in bounded memory; the others are read whole.
//
// Errors: [rlalgo.data.2], [rlalgo.data.6] and [rlalgo.data.28] of detail/input_file.hpp; [rlalgo.data.3] not valid
// JSON, with file:line; [rlalgo.data.4] a row is not an object, or `field` is not there; [rlalgo.data.30] JSON beyond the
// limits of core/bounded_json.hpp, or a row of too many columns; [rlalgo.data.36] what a value could not keep
// (core/exact_json.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/detail/input_file.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

// A row as it is read: its value, or the JSON text that is still to be parsed.
struct Record {
  Json value;
  std::string text;
  Origin origin;
};

// Rows one after another.
class RowReader {
 public:
  RowReader() = default;
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;
  virtual ~RowReader() = default;
  virtual bool next(Record& out) = 0;
  // How many of `rows` further rows were passed over: fewer where there are no more.
  virtual std::size_t skip(std::size_t rows) {
    std::size_t passed = 0;
    for (Record record; passed < rows && next(record);) ++passed;
    return passed;
  }
};

namespace detail {

// 1-based line of a byte offset.
std::int64_t line_of(std::string_view text, std::size_t byte);

[[noreturn]] void raise_invalid_json(const core::JsonProblem& problem, const std::string& file, std::int64_t line);

void require_object(const Json& value, const Origin& origin);

void append_object(Table& table, Json value, Origin origin);

Json parse_whole(const std::string& text, const std::string& file);

void append_items(Table& table, Json items, const std::shared_ptr<const std::string>& file);

void append_field(Table& table, const std::string& text, const std::string& field,
                  const std::shared_ptr<const std::string>& file);

// Objects one after another, each over as many lines as it likes.
void append_concatenated(Table& table, const std::string& text, const std::shared_ptr<const std::string>& file);

Json parse_row(const std::string& text, const Origin& origin);

inline bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// One object per line.
class JsonLines final : public RowReader {
 public:
  // Nothing when the file is not of this kind: its first line is no whole JSON, and the next does not begin a row.
  static std::unique_ptr<JsonLines> open(const std::filesystem::path& path);

  RLALGO_INLINE bool next(Record& out) override;

 private:
  explicit JsonLines(const std::filesystem::path& path)
      : file_(path), name_(std::make_shared<const std::string>(path.string())) {}
  bool advance();

  InputFile file_;
  std::shared_ptr<const std::string> name_;
  std::string line_;
  std::int64_t number_ = 0;
  bool pending_ = false;
};

// One row {"text": line} per line; empty lines are rows too.
class TextLines final : public RowReader {
 public:
  explicit TextLines(const std::filesystem::path& path)
      : file_(path), name_(std::make_shared<const std::string>(path.string())) {}
  RLALGO_INLINE bool next(Record& out) override;

 private:
  InputFile file_;
  std::shared_ptr<const std::string> name_;
  std::int64_t number_ = 0;
};

// Rows that are in memory.
class TableRows final : public RowReader {
 public:
  explicit TableRows(Table table) : table_(std::move(table)) {}
  RLALGO_INLINE bool next(Record& out) override;

 private:
  Table table_;
  std::size_t at_ = 0;
};

}  // namespace detail

// The value of a row, parsed now if it was not yet; an object.
void parse(Record& record);

// The rows of a JSON or JSON-lines file.
[[nodiscard]] std::unique_ptr<RowReader> open_json_rows(const std::filesystem::path& path,
                                                        const std::string& field = {});

// Appends the rows of a JSON or JSON-lines file.
void read_json_rows(Table& table, const std::filesystem::path& path, const std::string& field = {});

// Appends the lines of a text file.
void read_text_rows(Table& table, const std::filesystem::path& path);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/json_rows_impl.hpp>
#endif
