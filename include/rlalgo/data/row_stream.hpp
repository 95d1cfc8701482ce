// The rows of one `datasets` entry one after another, in bounded memory.
//
// No `split` means `train`. Bounds of a split expression (train[:10%]) need the number of rows: the files are read once
// more to count them. Several files of a split follow each other in the order of dataset_files.hpp.
//
// Errors: [rlalgo.data.5] no rows; [rlalgo.data.7] no such split; those of dataset_files.hpp, json_rows.hpp and
// delimited_rows.hpp.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/dataset_files.hpp>
#include <rlalgo/data/delimited_rows.hpp>
#include <rlalgo/data/json_rows.hpp>
#include <rlalgo/data/split_expression.hpp>

namespace rlalgo::data {

[[nodiscard]] inline std::unique_ptr<RowReader> open_rows(const std::filesystem::path& file,
                                                          const DatasetSource& source) {
  const std::string format = detail::format_of(file, source.ds_type, true);
  if (format == "text") return std::make_unique<detail::TextLines>(file);
  if (format == "csv" || format == "tsv")
    return std::make_unique<DelimitedRows>(file, format == "csv" ? ',' : '\t', source.numbers);
  return open_json_rows(file, source.field);
}

class RowStream {
 public:
  explicit RowStream(DatasetSource source)
      : source_(std::move(source)),
        expression_(source_.split.empty() ? "train" : source_.split),
        files_(detail::files_of(source_)),
        parts_(parse_split(expression_)) {
    for (const SplitPart& part : parts_)
      if (!files_.contains(part.name)) raise_unknown_split(part.name);
  }

  // Up to `limit` further rows replace what `out` holds; false: there are no more. Raises when there is no row at all.
  bool next(std::size_t limit, std::vector<Record>& out) {
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

 private:
  [[nodiscard]] const std::string& name() const {
    return source_.path.empty() ? source_.data_files.front() : source_.path;
  }

  bool advance(Record& out) {
    for (;;) {
      if (left_ > 0 && reader_) {
        if (reader_->next(out)) {
          if (skip_ > 0) {
            --skip_;
            continue;
          }
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

  [[nodiscard]] const std::vector<std::filesystem::path>& current() const { return files_.at(parts_[part_ - 1].name); }

  void begin_part(const SplitPart& part) {
    file_ = 0;
    skip_ = 0;
    left_ = static_cast<std::size_t>(-1);
    if (!part.from && !part.to) return;
    std::size_t rows = 0;
    for (const std::filesystem::path& file : files_.at(part.name)) {
      const auto reader = open_rows(file, source_);
      for (Record record; reader->next(record);) ++rows;
    }
    const core::Span span = part.rows(rows);
    skip_ = span.begin;
    left_ = span.end - span.begin;
  }

  [[noreturn]] void raise_unknown_split(const std::string& split) const {
    std::vector<std::string> names;
    std::string list;
    for (const auto& [known, paths] : files_) {
      names.push_back(known);
      list += (list.empty() ? "" : ", ") + known;
    }
    const std::string nearest = core::nearest_name(split, names);
    core::raise(
        "data", 7,
        {.what = "unknown split",
         .found = "\"" + split + "\"",
         .expected = list,
         .where = name(),
         .remedy = nearest.empty() ? "a plain file has only the split train" : "did you mean " + nearest + "?"});
  }

  DatasetSource source_;
  std::string expression_;
  detail::SplitFiles files_;
  std::vector<SplitPart> parts_;
  std::size_t part_ = 0;  // the one after the current
  std::size_t file_ = 0;  // of the current part, the next one
  std::size_t skip_ = 0, left_ = 0;
  std::unique_ptr<RowReader> reader_;
  bool any_ = false;
};

}  // namespace rlalgo::data
