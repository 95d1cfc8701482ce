// Definitions of json_rows.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/exact_json.hpp>
#include <rlalgo/data/detail/input_file.hpp>
#include <rlalgo/data/json_rows.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

namespace detail {

RLALGO_INLINE std::int64_t line_of(std::string_view text, std::size_t byte) {
  return 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size())), '\n');
}

RLALGO_INLINE void raise_invalid_json(const core::JsonProblem& problem, const std::string& file, std::int64_t line) {
  const std::string where = file + ":" + std::to_string(line);
  if (problem.beyond_limit)
    raise_beyond_limit("the JSON of the dataset is beyond what is read", problem.text, "", where,
                       "keep such a value as a text");
  core::raise("data", 3,
              {.what = "invalid JSON",
               .found = problem.text,
               .expected = "one JSON object per line, or one array of objects",
               .where = where});
}

[[noreturn]] inline void raise_loss(const core::JsonProblem& loss, const std::string& file, std::int64_t line) {
  core::raise("data", 36,
              {.what = "a row says something that its value could not keep",
               .found = loss.text,
               .expected = "whole numbers up to 64 bits, and every key once",
               .where = Origin{std::make_shared<const std::string>(file), line, -1}.text(),
               .remedy = "write such a number as a text; remove one of the two"});
}

RLALGO_INLINE void require_object(const Json& value, const Origin& origin) {
  if (value.is_object()) {
    constexpr std::size_t most = InputLimits{}.columns;
    if (value.size() <= most) return;
    raise_beyond_limit("a dataset row has too many columns", std::to_string(value.size()),
                       "at most " + std::to_string(most), origin.text(), "put what belongs together under one name");
  }
  core::raise("data", 4,
              {.what = "a dataset row is not an object",
               .found = value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60),
               .expected = "{\"column\": value, …}",
               .where = origin.text()});
}

RLALGO_INLINE void append_object(Table& table, Json value, Origin origin) {
  require_object(value, origin);
  table.append(std::move(value), std::move(origin));
}

RLALGO_INLINE Json parse_whole(const std::string& text, const std::string& file) {
  auto [value, problem] = core::read_json<Json>(text);
  if (!problem.text.empty()) raise_invalid_json(problem, file, line_of(text, problem.byte));
  if (const core::JsonProblem loss = core::json_loss(text); !loss.text.empty())
    raise_loss(loss, file, line_of(text, loss.byte));
  return std::move(value);
}

RLALGO_INLINE void append_items(Table& table, Json items, const std::shared_ptr<const std::string>& file) {
  std::int64_t item = 0;
  for (Json& value : items) append_object(table, std::move(value), {file, 0, item++});
}

RLALGO_INLINE void append_field(Table& table, const std::string& text, const std::string& field,
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

RLALGO_INLINE void append_concatenated(Table& table, const std::string& text,
                                       const std::shared_ptr<const std::string>& file) {
  if (const core::JsonProblem excess = core::json_excess(text); !excess.text.empty())
    raise_invalid_json(excess, *file, line_of(text, excess.byte));
  std::istringstream stream(text);
  while ((stream >> std::ws).good()) {
    const std::size_t begin = static_cast<std::size_t>(stream.tellg());
    Json value;
    try {
      stream >> value;
    } catch (const Json::parse_error& error) {
      raise_invalid_json({.text = core::json_reason(error.what())}, *file, line_of(text, begin + error.byte));
    } catch (const Json::exception& error) {  // a number that no double holds
      raise_invalid_json({.text = core::json_reason(error.what())}, *file, line_of(text, begin));
    }
    const auto end = stream.tellg();  // −1 behind the last letter
    const std::string_view own =
        std::string_view(text).substr(begin, end < 0 ? text.npos : static_cast<std::size_t>(end) - begin);
    if (const core::JsonProblem loss = core::json_loss(own); !loss.text.empty())
      raise_loss(loss, *file, line_of(text, begin + loss.byte));
    append_object(table, std::move(value), {file, line_of(text, begin), -1});
  }
}

RLALGO_INLINE Json parse_row(const std::string& text, const Origin& origin) {
  auto [value, problem] = core::read_json<Json>(text);
  if (!problem.text.empty()) raise_invalid_json(problem, *origin.file, origin.line);
  if (const core::JsonProblem loss = core::json_loss(text); !loss.text.empty())
    raise_loss(loss, *origin.file, origin.line);
  return std::move(value);
}

RLALGO_INLINE std::unique_ptr<JsonLines> JsonLines::open(const std::filesystem::path& path) {
  auto out = std::unique_ptr<JsonLines>(new JsonLines(path));
  if (out->file_.first_letter() == '[') return nullptr;  // an array may be one line of any length
  if (!out->advance()) return out;                       // an empty file
  const std::string_view first = std::string_view(out->line_).substr(out->line_.find_first_not_of(" \t\r"));
  if (first.front() == '[') return nullptr;
  if (Json::accept(first)) return out;
  if (first.find_first_not_of("{ \t\r") == std::string_view::npos) return nullptr;
  JsonLines second(path);
  if (second.advance() && second.advance() && second.line_[second.line_.find_first_not_of(" \t\r")] != '{')
    return nullptr;
  return out;
}

RLALGO_INLINE bool JsonLines::next(Record& out) {
  if (!pending_ && !advance()) return false;
  pending_ = false;
  out.value = nullptr;
  out.text.swap(line_);
  out.origin = {name_, number_, -1};
  return true;
}

RLALGO_INLINE bool JsonLines::advance() {
  do {
    if (!file_.read_line(line_)) return false;
    ++number_;
  } while (is_blank(line_));
  return pending_ = true;
}

RLALGO_INLINE bool TextLines::next(Record& out) {
  std::string line;
  if (!file_.read_line(line)) return false;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  out = {Json{{"text", std::move(line)}}, "", {name_, ++number_, -1}};
  return true;
}

RLALGO_INLINE bool TableRows::next(Record& out) {
  if (at_ == table_.size()) return false;
  out = {std::move(table_.row(at_)), "", table_.origin(at_)};
  ++at_;
  return true;
}

}  // namespace detail

RLALGO_INLINE void parse(Record& record) {
  if (!record.text.empty()) {
    record.value = detail::parse_row(record.text, record.origin);
    record.text.clear();
  }
  detail::require_object(record.value, record.origin);
}

RLALGO_INLINE std::unique_ptr<RowReader> open_json_rows(const std::filesystem::path& path, const std::string& field) {
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

RLALGO_INLINE void read_json_rows(Table& table, const std::filesystem::path& path, const std::string& field) {
  const auto rows = open_json_rows(path, field);
  for (Record record; rows->next(record);) {
    parse(record);
    table.append(std::move(record.value), std::move(record.origin));
  }
}

RLALGO_INLINE void read_text_rows(Table& table, const std::filesystem::path& path) {
  detail::TextLines lines(path);
  for (Record record; lines.next(record);) table.append(std::move(record.value), std::move(record.origin));
}

}  // namespace rlalgo::data
