// Rows of a CSV or TSV file: a header line, then one row per record (RFC 4180).
//
// A cell in double quotes may hold separators, line feeds and doubled quotes. An empty cell is null, a record with
// fewer cells than the header has nulls at its end, blank lines are skipped. The type of a column is that of all its
// cells: true/false (in any case) → boolean; integers; numbers; else text. The file is read twice, the first time for
// the types.
//
// Departures from pandas (which `datasets` uses): NA, None, null, nan … are texts; only an empty cell is null.
// Errors: [rlalgo.data.29] a record with more cells than the header, a quote that is not closed, a header with an empty
// or doubled name; [rlalgo.data.30] too many columns; those of detail/input_file.hpp.
#pragma once

#include <cctype>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/detail/input_file.hpp>
#include <rlalgo/data/json_rows.hpp>

namespace rlalgo::data {

namespace detail {

// The records of a file as lists of cells.
class DelimitedRecords {
 public:
  DelimitedRecords(const std::filesystem::path& path, char separator) : file_(path), separator_(separator) {}

  bool next(std::vector<std::string>& cells);

  [[nodiscard]] std::int64_t line() const noexcept { return begin_; }
  [[noreturn]] void fail(const std::string& found) const;

 private:
  bool read(std::string& line);
  [[noreturn]] void refuse_columns() const;

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

std::string lowered(std::string_view text);

CellKind kind_of_cell(const std::string& cell);

CellKind joined(CellKind a, CellKind b);

}  // namespace detail

class DelimitedRows final : public RowReader {
 public:
  // `numbers`: false leaves numbers as texts, except in columns of zeros and ones.
  DelimitedRows(const std::filesystem::path& path, char separator, bool numbers = true);

  RLALGO_INLINE bool next(Record& out) override;

 private:
  static Json value_of(const std::string& cell, detail::CellKind kind);

  detail::DelimitedRecords records_;
  std::shared_ptr<const std::string> name_;
  std::vector<std::string> names_, cells_;
  std::vector<detail::CellKind> kinds_;
};

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/delimited_rows_impl.hpp>
#endif
