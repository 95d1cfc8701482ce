// Reads one file of JSON rows: one object per line, one array of objects, or objects one after another.
//
// UTF-8, an optional byte-order mark, empty lines allowed. Every row remembers its line, so that a later complaint
// about it can name it. `field` selects the array inside one top-level object ({"data": […]}).
//
// Errors: [rlalgo.data.2] the file cannot be read; [rlalgo.data.3] not valid JSON, with file:line; [rlalgo.data.4] a
// row is not an object, or `field` is not there; [rlalgo.data.6] the bytes are of a format that is not read (gzip,
// Parquet …).
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

[[noreturn]] inline void raise_unread_format(const std::string& format, const std::string& where) {
  std::string remedy = "write the rows as JSON lines, one object per line";
  if (format == "gzip") remedy = "unpack it first: gunzip -k '" + where + "'";
  if (format == "zstd" || format == "xz")
    remedy = "unpack it first: " + std::string(format == "xz" ? "unxz" : "unzstd") + " -k '" + where + "'";
  if (format == "Parquet" || format == "Arrow" || format == "CSV")
    remedy = "convert it once in Python: datasets.load_dataset('" +
             std::string(format == "CSV"     ? "csv"
                         : format == "Arrow" ? "arrow"
                                             : "parquet") +
             "', data_files='" + where + "')['train'].to_json('rows.jsonl')";
  core::raise("data", 6,
              {.what = format + " files are not read",
               .expected = "JSON, JSON lines or text",
               .where = where,
               .remedy = remedy});
}

namespace detail {

inline std::string read_bytes(const std::filesystem::path& path) {
  const auto fail = [&](int error) {
    core::raise("data", 2,
                {.what = "cannot read the dataset file", .found = std::strerror(error), .where = path.string()});
  };
  if (std::filesystem::is_directory(path)) fail(EISDIR);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(errno != 0 ? errno : EIO);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) fail(errno != 0 ? errno : EIO);
  return bytes;
}

inline void refuse_binary(const std::string& bytes, const std::string& where) {
  const auto begins = [&](std::string_view magic) { return bytes.compare(0, magic.size(), magic) == 0; };
  if (begins("\x1f\x8b")) raise_unread_format("gzip", where);
  if (begins("\x28\xb5\x2f\xfd")) raise_unread_format("zstd", where);
  if (begins("\xfd"
             "7zXZ"))
    raise_unread_format("xz", where);
  if (begins("PAR1")) raise_unread_format("Parquet", where);
  if (begins("ARROW1")) raise_unread_format("Arrow", where);
}

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

inline void append_object(Table& table, Json value, Origin origin) {
  if (!value.is_object()) {
    core::raise("data", 4,
                {.what = "a dataset row is not an object",
                 .found = value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60),
                 .expected = "{\"column\": value, …}",
                 .where = origin.text()});
  }
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

inline void append_lines(Table& table, std::string_view text, const std::shared_ptr<const std::string>& file) {
  std::int64_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Json value;
    try {
      value = Json::parse(line);
    } catch (const Json::parse_error& error) {
      raise_invalid_json(*file, number, error.what());
    }
    append_object(table, std::move(value), {file, number, -1});
  }
}

}  // namespace detail

// Appends the rows of a JSON or JSON-lines file.
inline void read_json_rows(Table& table, const std::filesystem::path& path, const std::string& field = {}) {
  std::string text = detail::read_bytes(path);
  detail::refuse_binary(text, path.string());
  if (text.compare(0, 3, "\xef\xbb\xbf") == 0) text.erase(0, 3);
  const auto file = std::make_shared<const std::string>(path.string());
  if (!field.empty()) return detail::append_field(table, text, field, file);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return;
  if (text[begin] == '[') return detail::append_items(table, detail::parse_whole(text, *file), file);
  // A first line that is whole JSON means one row per line; otherwise an object spans lines.
  const std::string_view first_line = std::string_view(text).substr(begin, text.find('\n', begin) - begin);
  const std::size_t next = text.find_first_not_of(" \t\r\n", begin + first_line.size());
  const bool brace_alone = first_line.find_first_not_of("{ \t\r") == std::string_view::npos;
  if (!Json::accept(first_line) && (brace_alone || (next != std::string::npos && text[next] != '{')))
    return detail::append_concatenated(table, text, file);
  detail::append_lines(table, text, file);
}

// Appends one row {"text": line} per line of a text file; empty lines are rows too.
inline void read_text_rows(Table& table, const std::filesystem::path& path) {
  const std::string bytes = detail::read_bytes(path);
  detail::refuse_binary(bytes, path.string());
  const auto file = std::make_shared<const std::string>(path.string());
  std::istringstream stream(bytes);
  std::string line;
  for (std::int64_t number = 1; std::getline(stream, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    table.append(Json{{"text", line}}, {file, number, -1});
  }
}

}  // namespace rlalgo::data
