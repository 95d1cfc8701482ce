// The rows of one `datasets` entry one after another, in bounded memory.
//
// No `split` means `train`. Bounds of a split expression (train[:10%]) need the number of rows: the files are read once
// more to count them. Several files of a split follow each other in the order of dataset_files.hpp.
//
// Errors: [rlalgo.data.5] no rows; [rlalgo.data.7] no such split; those of dataset_files.hpp, json_rows.hpp,
// columnar_rows.hpp and delimited_rows.hpp.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/dataset_files.hpp>
#include <rlalgo/data/delimited_rows.hpp>
#include <rlalgo/data/json_rows.hpp>
#include <rlalgo/data/split_expression.hpp>

namespace rlalgo::data {

[[nodiscard]] std::unique_ptr<RowReader> open_rows(const std::filesystem::path& file, const DatasetSource& source);

class RowStream {
 public:
  explicit RowStream(DatasetSource source);

  // Up to `limit` further rows replace what `out` holds; false: there are no more. Raises when there is no row at all.
  bool next(std::size_t limit, std::vector<Record>& out);

 private:
  [[nodiscard]] std::string name() const;

  bool advance(Record& out);

  [[nodiscard]] const std::vector<std::filesystem::path>& current() const { return files_.at(parts_[part_ - 1].name); }

  void begin_part(const SplitPart& part);

  [[noreturn]] void raise_unknown_split(const std::string& split) const;

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

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/row_stream_impl.hpp>
#endif
