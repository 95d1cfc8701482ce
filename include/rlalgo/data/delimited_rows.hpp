// Rows of a CSV or TSV file: a header line, then one row per record (RFC 4180).
//
// A cell in double quotes may hold separators, line feeds and doubled quotes. An empty cell is null, a record with
// fewer cells than the header has nulls at its end, blank lines are skipped. The type of a column is that of all its
// cells: true/false (in any case) → boolean; integers; numbers; else text. The file is read twice, the first time for
// the types.
//
// Departures from pandas (which `datasets` uses): NA, None, null, nan … are texts; only an empty cell is null.
// Errors: [rlalgo.data.29] a record with more cells than the header, a quote that is not closed, a header with an empty
// or doubled name; those of detail/input_file.hpp.
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

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/detail/input_file.hpp>
#include <rlalgo/data/json_rows.hpp>

namespace rlalgo::data {

namespace detail {

// The records of a file as lists of cells.
class DelimitedRecords {
 public:
  DelimitedRecords(const std::filesystem::path& path, char separator) : file_(path), separator_(separator) {}

  bool next(std::vector<std::string>& cells) {
    std::string line;
    do {
      if (!read(line)) return false;
    } while (is_blank(line));
    begin_ = number_;
    cells.assign(1, "");
    bool quoted = false, fresh = true;  // fresh: nothing of the cell was read yet
    for (std::size_t i = 0;; ++i) {
      if (i == line.size()) {
        if (!quoted) return true;
        if (!read(line)) fail("a quote is not closed");
        cells.back() += '\n';
        i = static_cast<std::size_t>(-1);
      } else if (quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"') {
        cells.back() += line[++i];
      } else if (line[i] == '"' && (quoted || fresh)) {
        quoted = !quoted;
        fresh = false;
      } else if (!quoted && line[i] == separator_) {
        cells.emplace_back();
        fresh = true;
      } else {
        cells.back() += line[i];
        fresh = false;
      }
    }
  }

  [[nodiscard]] std::int64_t line() const noexcept { return begin_; }
  [[noreturn]] void fail(const std::string& found) const {
    core::raise("data", 29,
                {.what = "the CSV file is not well formed",
                 .found = found,
                 .expected = "a header line, then as many cells per record",
                 .where = file_.path().string() + ":" + std::to_string(begin_)});
  }

 private:
  bool read(std::string& line) {
    if (!file_.read_line(line)) return false;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    ++number_;
    return true;
  }

  InputFile file_;
  char separator_;
  std::int64_t number_ = 0, begin_ = 0;  // of the line just read; of the record's first line
};

// What a cell can be, in order of generality.
enum class CellKind { none, boolean, integer, number, text };

template <class T>
bool reads_as(std::string_view cell, T& value) {
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return error == std::errc() && end == cell.data() + cell.size();
}

inline std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

inline CellKind kind_of_cell(const std::string& cell) {
  if (cell.empty()) return CellKind::none;
  if (const std::string word = lowered(cell); word == "true" || word == "false") return CellKind::boolean;
  std::int64_t integer = 0;
  if (reads_as(cell, integer)) return CellKind::integer;
  double number = 0;
  if (reads_as(cell, number) && std::isdigit(static_cast<unsigned char>(cell.back())) != 0) return CellKind::number;
  return CellKind::text;
}

inline CellKind joined(CellKind a, CellKind b) {
  if (a == CellKind::none) return b;
  if (b == CellKind::none || a == b) return a;
  if (a == CellKind::boolean || b == CellKind::boolean) return CellKind::text;
  return std::max(a, b);
}

}  // namespace detail

class DelimitedRows final : public RowReader {
 public:
  // `numbers`: false leaves numbers as texts, except in columns of zeros and ones.
  DelimitedRows(const std::filesystem::path& path, char separator, bool numbers = true)
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

  bool next(Record& out) override {
    if (names_.empty() || !records_.next(cells_)) return false;
    out.text.clear();
    out.value = Json::object();
    for (std::size_t i = 0; i < names_.size(); ++i)
      out.value[names_[i]] = i < cells_.size() ? value_of(cells_[i], kinds_[i]) : Json();
    out.origin = {name_, records_.line(), -1};
    return true;
  }

 private:
  static Json value_of(const std::string& cell, detail::CellKind kind) {
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

  detail::DelimitedRecords records_;
  std::shared_ptr<const std::string> name_;
  std::vector<std::string> names_, cells_;
  std::vector<detail::CellKind> kinds_;
};

}  // namespace rlalgo::data
