// Dataset rows in memory: JSON objects with one set of columns, each row knowing where it was read.
//
// Invariant after unify_columns(): every row has every column, absent ones as null, and the non-null values of a column
// are of one kind (string, boolean, number, list, object). A column that mixes integers and floats is all floats. This
// is the schema rule of Hugging Face `datasets`, so a reward function never meets two types under one name.
//
// Errors: [rlalgo.data.8] a column mixes kinds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::data {

// Where a row was read: `file:line` of a file of lines, `file[item]` of a JSON array.
struct Origin {
  std::shared_ptr<const std::string> file;
  std::int64_t line = 0;   // 1-based; 0 = the row is an array item
  std::int64_t item = -1;  // 0-based

  [[nodiscard]] std::string text() const {
    const std::string name = file ? *file : "memory";
    return line > 0 ? name + ":" + std::to_string(line) : name + "[" + std::to_string(item) + "]";
  }
};

namespace detail {

inline std::string_view kind_of(const Json& value) {
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_array()) return "a list";
  return "an object";
}

[[noreturn]] inline void raise_mixed_column(const std::string& column, std::string_view found, const Origin& at,
                                            std::string_view expected, const Origin& first) {
  core::raise("data", 8,
              {.what = "column \"" + column + "\" mixes types",
               .found = std::string(found) + " at " + at.text(),
               .expected = std::string(expected) + " as at " + first.text(),
               .remedy = "give every row of a dataset the same type in one column (null is allowed)"});
}

// The kinds of the columns of rows that are seen one after another.
class ColumnKinds {
 public:
  void check(const Json& row, const Origin& origin) {
    for (const auto& [column, value] : row.items()) {
      if (value.is_null()) continue;
      const auto [known, first] = kinds_.try_emplace(column, kind_of(value), origin);
      if (!first && known->second.first != kind_of(value))
        raise_mixed_column(column, kind_of(value), origin, known->second.first, known->second.second);
    }
  }

 private:
  std::unordered_map<std::string, std::pair<std::string_view, Origin>> kinds_;
};

}  // namespace detail

class Table {
 public:
  void append(Json row, Origin origin) {
    rows_.push_back(std::move(row));
    origins_.push_back(std::move(origin));
  }
  void append(const Table& other) {
    rows_.insert(rows_.end(), other.rows_.begin(), other.rows_.end());
    origins_.insert(origins_.end(), other.origins_.begin(), other.origins_.end());
  }

  [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
  [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }
  [[nodiscard]] const Json& row(std::size_t i) const { return rows_[i]; }
  [[nodiscard]] Json& row(std::size_t i) { return rows_[i]; }
  [[nodiscard]] const Origin& origin(std::size_t i) const { return origins_[i]; }
  [[nodiscard]] std::string where(std::size_t i) const { return origins_[i].text(); }
  [[nodiscard]] const std::vector<Json>& rows() const noexcept { return rows_; }

  // Rows `order[0], order[1], …` as a new table.
  [[nodiscard]] Table selected(const std::vector<std::size_t>& order) const {
    Table out;
    out.rows_.reserve(order.size());
    for (const std::size_t i : order) out.append(rows_[i], origins_[i]);
    return out;
  }
  [[nodiscard]] Table slice(std::size_t begin, std::size_t end) const {
    Table out;
    for (std::size_t i = begin; i < end; ++i) out.append(rows_[i], origins_[i]);
    return out;
  }

  // Column names in order of first appearance.
  [[nodiscard]] std::vector<std::string> columns() const {
    std::vector<std::string> names;
    std::unordered_map<std::string, bool> seen;
    for (const Json& row : rows_)
      for (const auto& [name, value] : row.items())
        if (seen.emplace(name, true).second) names.push_back(name);
    return names;
  }

  void unify_columns() {
    for (const std::string& column : columns()) unify_column(column);
  }

 private:
  void unify_column(const std::string& column) {
    constexpr std::size_t none = static_cast<std::size_t>(-1);
    std::size_t first = none;
    bool floats = false;
    bool integers = false;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto cell = rows_[i].find(column);
      if (cell == rows_[i].end()) {
        rows_[i][column] = nullptr;
        continue;
      }
      if (cell->is_null()) continue;
      floats = floats || cell->is_number_float();
      integers = integers || cell->is_number_integer();
      if (first == none) {
        first = i;
      } else if (detail::kind_of(*cell) != detail::kind_of(rows_[first][column])) {
        detail::raise_mixed_column(column, detail::kind_of(*cell), origins_[i], detail::kind_of(rows_[first][column]),
                                   origins_[first]);
      }
    }
    if (!floats || !integers) return;
    for (Json& row : rows_)
      if (row[column].is_number_integer()) row[column] = row[column].get<double>();
  }

  std::vector<Json> rows_;
  std::vector<Origin> origins_;
};

}  // namespace rlalgo::data
