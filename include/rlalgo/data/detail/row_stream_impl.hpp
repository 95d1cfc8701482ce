// Definitions of row_stream.hpp.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/columnar_rows.hpp>
#include <rlalgo/data/dataset_files.hpp>
#include <rlalgo/data/dataset_folder.hpp>
#include <rlalgo/data/delimited_rows.hpp>
#include <rlalgo/data/json_rows.hpp>
#include <rlalgo/data/row_stream.hpp>
#include <rlalgo/data/split_expression.hpp>

namespace rlalgo::data {

RLALGO_INLINE std::unique_ptr<RowReader> open_rows(const std::filesystem::path& file, const DatasetSource& source) {
  const std::string named = detail::format_named_by(source);
  const std::string format = detail::format_of(file, named.empty() ? source.ds_type : named, true);
  if (format == "parquet" || format == "arrow") {
    const bool saved = format == "arrow" && source.columns.empty();
    return std::make_unique<ColumnarRows>(file, saved ? columns_shown(file) : source.columns, source.tell);
  }
  if (format == "text") return std::make_unique<detail::TextLines>(file);
  if (format == "csv" || format == "tsv")
    return std::make_unique<DelimitedRows>(file, format == "csv" ? ',' : '\t', source.numbers);
  return open_json_rows(file, source.field);
}

RLALGO_INLINE RowStream::RowStream(DatasetSource source)
    : source_(std::move(source)),
      expression_(source_.split.empty() ? "train" : source_.split),
      files_(detail::files_of(source_)),
      parts_(parse_split(expression_)) {
  for (const SplitPart& part : parts_)
    if (!files_.contains(part.name)) raise_unknown_split(part.name);
}

RLALGO_INLINE bool RowStream::next(std::size_t limit, std::vector<Record>& out) {
  out.clear();
  for (Record record; out.size() < limit && advance(record);) out.push_back(std::move(record));
  any_ = any_ || !out.empty();
  if (!any_)
    core::raise("data", 5,
                {.what = "the dataset has no rows",
                 .expected = "at least one",
                 .where = name() + " (split " + expression_ + ")"});
  return !out.empty();
}

RLALGO_INLINE std::string RowStream::name() const { return source_.label(); }

RLALGO_INLINE bool RowStream::advance(Record& out) {
  for (;;) {
    if (left_ > 0 && reader_) {
      if (skip_ > 0) skip_ -= reader_->skip(skip_);
      if (skip_ == 0 && reader_->next(out)) {
        --left_;
        return true;
      }
      reader_.reset();
    }
    if (left_ > 0 && file_ < current().size()) {
      reader_ = open_rows(current()[file_++], source_);
      continue;
    }
    reader_.reset();
    if (part_ == parts_.size()) return false;
    begin_part(parts_[part_++]);
  }
}

RLALGO_INLINE void RowStream::begin_part(const SplitPart& part) {
  file_ = 0;
  skip_ = 0;
  left_ = static_cast<std::size_t>(-1);
  if (!part.from && !part.to) return;
  std::size_t rows = 0;
  for (const std::filesystem::path& file : files_.at(part.name)) {
    rows += open_rows(file, source_)->skip(static_cast<std::size_t>(-1));
  }
  const core::Span span = part.rows(rows);
  skip_ = span.begin;
  left_ = span.end - span.begin;
}

RLALGO_INLINE void RowStream::raise_unknown_split(const std::string& split) const {
  std::vector<std::string> names;
  std::string list;
  for (const auto& [known, paths] : files_) {
    names.push_back(known);
    list += (list.empty() ? "" : ", ") + known;
  }
  const std::string nearest = core::nearest_name(split, names);
  core::raise("data", 7,
              {.what = "unknown split",
               .found = "\"" + split + "\"",
               .expected = list,
               .where = name(),
               .remedy = !nearest.empty()     ? "did you mean " + nearest + "?"
                         : files_.size() == 1 ? "a plain file, a pattern and a list of files have one split; a map of "
                                                "data_files names others"
                                              : ""});
}

}  // namespace rlalgo::data
