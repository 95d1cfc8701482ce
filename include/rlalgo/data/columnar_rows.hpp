// Reads Parquet and Arrow files row by row, by a plug-in that is loaded when the first such file is opened.
//
// The plug-in (data/columnar_plugin.hpp) is the file that $RLALGO_ARROW_PLUGIN names, else librlalgo_arrow.so in the folder of
// the program, in ../lib/rlalgo, or where the system looks for libraries. Apache Arrow's libraries come from where the
// plug-in was linked to, or from the folder $RLALGO_ARROW_ROOT: the package `pyarrow` of a Python. Nothing is loaded before.
//
// A row is a JSON object with the columns of the file in their order. What has no JSON form (bytes, durations) is left out,
// numbers that are not finite are null; `tell` hears of each such column once a file, when its first row is taken or later.
//
// Errors: [rlalgo.data.2] the file cannot be read, or is no regular file; [rlalgo.data.6] there is no plug-in or no Arrow for
// it; [rlalgo.data.30] a row or a page is too large; [rlalgo.data.37] a column of images; [rlalgo.data.38] the file is damaged
// or of another format; [rlalgo.data.39] it is encrypted, or uses what is not read; [rlalgo.data.40] a column that was asked
// for is not there, or two have one name; [rlalgo.data.41] a text is no UTF-8, or a JSON text no JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/columnar_plugin.hpp>
#include <rlalgo/data/json_rows.hpp>

namespace rlalgo::data {

namespace detail {

struct LoadedColumnarPlugin {
  const ColumnarPlugin* plugin = nullptr;
  std::string found, remedy;  // why there is none
};

// Loads the plug-in, whether or not one is loaded already.
[[nodiscard]] LoadedColumnarPlugin load_columnar_plugin();

// "26" of "libarrow.so.2600: cannot open …"; "": the library that is missing is another.
[[nodiscard]] std::string missing_arrow(const std::string& said);

}  // namespace detail

// What can be said once the plug-in is loaded: "Arrow 26.0.1". Raises as opening a file would.
[[nodiscard]] std::string columnar_library();

class ColumnarRows final : public RowReader {
 public:
  // `columns`: those that are read; empty: all.
  ColumnarRows(const std::filesystem::path& path, const std::vector<std::string>& columns,
               std::function<void(const std::string&)> tell = {});

  RLALGO_INLINE bool next(Record& out) override;
  // Without making their values; whole row groups are not read at all.
  RLALGO_INLINE std::size_t skip(std::size_t rows) override;

 private:
  [[noreturn]] void fail(const ColumnarProblem& problem) const;
  void tell_left_out();

  std::filesystem::path path_;
  std::shared_ptr<const std::string> name_;
  std::function<void(const std::string&)> tell_;
  const ColumnarPlugin* plugin_;
  std::unique_ptr<void, void (*)(void*)> handle_{nullptr, nullptr};
  std::int64_t row_ = 0;
  std::set<std::string> told_;
};

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/columnar_rows_impl.hpp>
#endif
