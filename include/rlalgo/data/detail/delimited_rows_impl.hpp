// Definitions of delimited_rows.hpp.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/delimited_rows.hpp>
#include <rlalgo/data/detail/input_file.hpp>
#include <rlalgo/data/json_rows.hpp>

namespace rlalgo::data {

namespace detail {

RLALGO_INLINE std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

RLALGO_INLINE CellKind kind_of_cell(const std::string& cell) {
  if (cell.empty()) return CellKind::none;
  if (const std::string word = lowered(cell); word == "true" || word == "false") return CellKind::boolean;
  std::int64_t integer = 0;
  if (reads_as(cell, integer)) return CellKind::integer;
  // A whole number that 64 bits do not hold stays the text that it is.
  if (cell.find_first_not_of("0123456789", cell[0] == '-' || cell[0] == '+' ? 1 : 0) == std::string::npos)
    return CellKind::text;
  double number = 0;
  if (reads_as(cell, number) && std::isdigit(static_cast<unsigned char>(cell.back())) != 0) return CellKind::number;
  return CellKind::text;
}

RLALGO_INLINE CellKind joined(CellKind a, CellKind b) {
  if (a == CellKind::none) return b;
  if (b == CellKind::none || a == b) return a;
  if (a == CellKind::boolean || b == CellKind::boolean) return CellKind::text;
  return std::max(a, b);
}

RLALGO_INLINE bool DelimitedRecords::next(std::vector<std::string>& cells) {
  std::string line;
  do {
    if (!read(line)) return false;
  } while (is_blank(line));
  begin_ = number_;
  cells.assign(1, "");
  bool quoted = false, fresh = true;  // fresh: nothing of the cell was read yet
  std::uint64_t bytes = line.size();
  for (std::size_t i = 0;; ++i) {
    if (i == line.size()) {
      if (!quoted) return true;
      if (!read(line)) fail("a quote is not closed");
      if ((bytes += line.size() + 1) > file_.limits().line) file_.refuse_line(begin_);
      cells.back() += '\n';
      i = static_cast<std::size_t>(-1);
    } else if (quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[++i];
    } else if (line[i] == '"' && (quoted || fresh)) {
      quoted = !quoted;
      fresh = false;
    } else if (!quoted && line[i] == separator_) {
      if (cells.size() == file_.limits().columns) refuse_columns();
      cells.emplace_back();
      fresh = true;
    } else {
      cells.back() += line[i];
      fresh = false;
    }
  }
}

RLALGO_INLINE void DelimitedRecords::fail(const std::string& found) const {
  core::raise("data", 29,
              {.what = "the CSV file is not well formed",
               .found = found,
               .expected = "a header line, then as many cells per record",
               .where = file_.path().string() + ":" + std::to_string(begin_)});
}

RLALGO_INLINE void DelimitedRecords::refuse_columns() const {
  raise_beyond_limit("a dataset row has too many columns", "more than " + std::to_string(file_.limits().columns),
                     "at most that", file_.path().string() + ":" + std::to_string(begin_),
                     "check the separator, or put what belongs together under one name");
}

RLALGO_INLINE bool DelimitedRecords::read(std::string& line) {
  if (!file_.read_line(line)) return false;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  ++number_;
  return true;
}

}  // namespace detail

RLALGO_INLINE DelimitedRows::DelimitedRows(const std::filesystem::path& path, char separator, bool numbers)
    : records_(path, separator), name_(std::make_shared<const std::string>(path.string())) {
  using detail::CellKind;
  detail::DelimitedRecords first(path, separator);
  if (!first.next(names_)) return;
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (names_[i].empty() || std::find(names_.begin(), names_.begin() + static_cast<std::ptrdiff_t>(i), names_[i]) !=
                                 names_.begin() + static_cast<std::ptrdiff_t>(i))
      first.fail(names_[i].empty() ? "a column without a name" : "two columns called " + names_[i]);
  kinds_.assign(names_.size(), CellKind::none);
  std::vector<bool> bits(names_.size(), true);  // only 0 and 1
  for (std::vector<std::string> cells; first.next(cells);) {
    if (cells.size() > names_.size())
      first.fail(std::to_string(cells.size()) + " cells under " + std::to_string(names_.size()) + " names");
    for (std::size_t i = 0; i < cells.size(); ++i) {
      kinds_[i] = detail::joined(kinds_[i], detail::kind_of_cell(cells[i]));
      bits[i] = bits[i] && (cells[i].empty() || cells[i] == "0" || cells[i] == "1");
    }
  }
  for (std::size_t i = 0; i < kinds_.size(); ++i)
    if (!numbers && !bits[i] && (kinds_[i] == CellKind::integer || kinds_[i] == CellKind::number))
      kinds_[i] = CellKind::text;
  records_.next(cells_);  // the header
}

RLALGO_INLINE bool DelimitedRows::next(Record& out) {
  if (names_.empty() || !records_.next(cells_)) return false;
  out.text.clear();
  out.value = Json::object();
  for (std::size_t i = 0; i < names_.size(); ++i)
    out.value[names_[i]] = i < cells_.size() ? value_of(cells_[i], kinds_[i]) : Json();
  out.origin = {name_, records_.line(), -1};
  return true;
}

RLALGO_INLINE Json DelimitedRows::value_of(const std::string& cell, detail::CellKind kind) {
  using detail::CellKind;
  if (cell.empty()) return nullptr;
  if (kind == CellKind::boolean) return detail::lowered(cell) == "true";
  if (kind == CellKind::integer) {
    std::int64_t value = 0;
    if (detail::reads_as(cell, value)) return value;
  }
  if (kind == CellKind::number) {
    double value = 0;
    if (detail::reads_as(cell, value)) return value;
  }
  return cell;
}

}  // namespace rlalgo::data
