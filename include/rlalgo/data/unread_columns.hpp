// Which columns of preference data say nothing to a run: a row without one makes the same prompt and the same answers.
//
// Found out on the first rows of a dataset: each is transformed again without the column. Null and empty values say nothing
// by themselves. Columns of images are refused: no model here sees them (TRL refuses them for a model without vision, too).
//
// Errors: [rlalgo.data.37] a row has images.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/preference_row.hpp>
#include <rlalgo/data/prepare_answers.hpp>
#include <rlalgo/data/transform.hpp>

namespace rlalgo::data {

// Raises where a row's column image or images is not empty.
void require_no_images(const Json& row, const std::string& where);

class UnreadColumns {
 public:
  static constexpr std::size_t looked_at = 64;  // rows

  // `tools_column`: of the tools that a template is given.
  UnreadColumns(RowTransform transform, PreferenceFamily family, std::string tools_column = "tools");

  // The same rows, the first of which are looked at.
  [[nodiscard]] RowChunks watch(RowChunks rows);

  // In the order of their first row, with its place: "margin (rows.jsonl:3), system (rows.jsonl:1)"; empty: none. What cannot
  // be read or transformed is reported by who prepares it.
  [[nodiscard]] std::string found() const;

 private:
  void look(const Json& row, const std::string& where);
  [[nodiscard]] Json said_by(Json row, const std::string& where) const;

  struct Seen {
    std::string where;
    bool read = false;
  };
  RowTransform transform_;
  PreferenceFamily family_;
  std::string tools_column_;
  std::size_t rows_ = 0;
  std::vector<std::string> order_;
  std::map<std::string, Seen> columns_;
};

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/unread_columns_impl.hpp>
#endif
