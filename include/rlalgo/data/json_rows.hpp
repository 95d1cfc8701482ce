// Reads files of JSON rows: one object per line, one array of objects, or objects one after another; and of text lines.
//
// UTF-8, an optional byte-order mark, gzip, empty lines allowed. Every row remembers its line, so that a later
// complaint about it can name it. `field` selects the array inside one top-level object ({"data": […]}). A file of one
// object per line is read line by line, in bounded memory; the others are read whole.
//
// Errors: [rlalgo.data.2], [rlalgo.data.6] and [rlalgo.data.28] of detail/input_file.hpp; [rlalgo.data.3] not valid
// JSON, with file:line; [rlalgo.data.4] a row is not an object, or `field` is not there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/error.hpp>
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
};

namespace detail {

// 1-based line of a byte offset.
inline std::int64_t line_of(std::string_view text, std::size_t byte) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size())), '\n');
}

// The part of nlohmann's message that says what is wrong, without its own numbering and position.
inline std::string json_reason(const char* what) {
  std::string text(what);
  if (const auto at = text.find("parse error"); at != std::string::npos)
    if (const auto colon = text.find(": ", at); colon != std::string::npos) text = text.substr(colon + 2);
  return text;
}

[[noreturn]] inline void raise_invalid_json(const std::string& file, std::int64_t line, const char* what) {
  core::raise("data", 3,
              {.what = "invalid JSON",
               .found = json_reason(what),
               .expected = "one JSON object per line, or one array of objects",
               .where = file + ":" + std::to_string(line)});
}

inline void require_object(const Json& value, const Origin& origin) {
  if (value.is_object()) return;
  core::raise("data", 4,
              {.what = "a dataset row is not an object",
               .found = value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60),
               .expected = "{\"column\": value, …}",
               .where = origin.text()});
}

inline void append_object(Table& table, Json value, Origin origin) {
  require_object(value, origin);
  table.append(std::move(value), std::move(origin));
}

inline Json parse_whole(const std::string& text, const std::string& file) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    raise_invalid_json(file, line_of(text, error.byte), error.what());
  }
}

inline void append_items(Table& table, Json items, const std::shared_ptr<const std::string>& file) {
  std::int64_t item = 0;
  for (Json& value : items) append_object(table, std::move(value), {file, 0, item++});
}

inline void append_field(Table& table, const std::string& text, const std::string& field,
                         const std::shared_ptr<const std::string>& file) {
  Json document = parse_whole(text, *file);
  if (!document.is_object() || !document.contains(field) || !document[field].is_array()) {
    core::raise("data", 4,
                {.what = "the dataset's field is not a list of rows",
                 .found = document.is_object() && document.contains(field) ? "another type" : "no such field",
                 .expected = "an object with a list under \"" + field + "\"",
                 .where = *file});
  }
  append_items(table, std::move(document[field]), file);
}

// Objects one after another, each over as many lines as it likes.
inline void append_concatenated(Table& table, const std::string& text, const std::shared_ptr<const std::string>& file) {
  std::istringstream stream(text);
  while ((stream >> std::ws).good()) {
    const std::size_t begin = static_cast<std::size_t>(stream.tellg());
    Json value;
    try {
      stream >> value;
    } catch (const Json::parse_error& error) {
      raise_invalid_json(*file, line_of(text, begin + error.byte), error.what());
    }
    append_object(table, std::move(value), {file, line_of(text, begin), -1});
  }
}

inline Json parse_row(const std::string& text, const Origin& origin) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    raise_invalid_json(*origin.file, origin.line, error.what());
  }
}

inline bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// One object per line.
class JsonLines final : public RowReader {
 public:
  // Nothing when the file is not of this kind: its first line is no whole JSON, and the next does not begin a row.
  static std::unique_ptr<JsonLines> open(const std::filesystem::path& path) {
    auto out = std::unique_ptr<JsonLines>(new JsonLines(path));
    if (!out->advance()) return out;  // an empty file
    const std::string_view first = std::string_view(out->line_).substr(out->line_.find_first_not_of(" \t\r"));
    if (first.front() == '[') return nullptr;
    if (Json::accept(first)) return out;
    if (first.find_first_not_of("{ \t\r") == std::string_view::npos) return nullptr;
    JsonLines second(path);
    if (second.advance() && second.advance() && second.line_[second.line_.find_first_not_of(" \t\r")] != '{')
      return nullptr;
    return out;
  }

  bool next(Record& out) override {
    if (!pending_ && !advance()) return false;
    pending_ = false;
    out.value = nullptr;
    out.text.swap(line_);
    out.origin = {name_, number_, -1};
    return true;
  }

 private:
  explicit JsonLines(const std::filesystem::path& path)
      : file_(path), name_(std::make_shared<const std::string>(path.string())) {}
  bool advance() {
    do {
      if (!file_.read_line(line_)) return false;
      ++number_;
    } while (is_blank(line_));
    return pending_ = true;
  }

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
  bool next(Record& out) override {
    std::string line;
    if (!file_.read_line(line)) return false;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    out = {Json{{"text", std::move(line)}}, "", {name_, ++number_, -1}};
    return true;
  }

 private:
  InputFile file_;
  std::shared_ptr<const std::string> name_;
  std::int64_t number_ = 0;
};

// Rows that are in memory.
class TableRows final : public RowReader {
 public:
  explicit TableRows(Table table) : table_(std::move(table)) {}
  bool next(Record& out) override {
    if (at_ == table_.size()) return false;
    out = {std::move(table_.row(at_)), "", table_.origin(at_)};
    ++at_;
    return true;
  }

 private:
  Table table_;
  std::size_t at_ = 0;
};

}  // namespace detail

// The value of a row, parsed now if it was not yet; an object.
inline void parse(Record& record) {
  if (!record.text.empty()) {
    record.value = detail::parse_row(record.text, record.origin);
    record.text.clear();
  }
  detail::require_object(record.value, record.origin);
}

// The rows of a JSON or JSON-lines file.
[[nodiscard]] inline std::unique_ptr<RowReader> open_json_rows(const std::filesystem::path& path,
                                                               const std::string& field = {}) {
  if (field.empty())
    if (auto lines = detail::JsonLines::open(path)) return lines;
  const std::string text = detail::InputFile(path).read_all();
  const auto file = std::make_shared<const std::string>(path.string());
  Table table;
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (!field.empty())
    detail::append_field(table, text, field, file);
  else if (begin != std::string::npos && text[begin] == '[')
    detail::append_items(table, detail::parse_whole(text, *file), file);
  else
    detail::append_concatenated(table, text, file);
  return std::make_unique<detail::TableRows>(std::move(table));
}

// Appends the rows of a JSON or JSON-lines file.
inline void read_json_rows(Table& table, const std::filesystem::path& path, const std::string& field = {}) {
  const auto rows = open_json_rows(path, field);
  for (Record record; rows->next(record);) {
    parse(record);
    table.append(std::move(record.value), std::move(record.origin));
  }
}

// Appends the lines of a text file.
inline void read_text_rows(Table& table, const std::filesystem::path& path) {
  detail::TextLines lines(path);
  for (Record record; lines.next(record);) table.append(std::move(record.value), std::move(record.origin));
}

}  // namespace rlalgo::data
