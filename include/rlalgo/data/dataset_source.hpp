// What a `datasets` entry names, and how files of data are known: by their extensions, and by patterns.
//
// The format is that of the extension before .gz and .zst, or by `ds_type`. In a pattern `*`, `?` and `[…]` stay within a name,
// and `**` stands for folders at any depth; names that begin with a dot are matched by a dot only.
//
// Errors: [rlalgo.data.6] a format that is not read.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>

namespace rlalgo::data {

struct DatasetSource {
  std::string path = {};  // file, directory, pattern, format, or cached id; may be empty with data_files
  std::vector<std::string> data_files = {};                          // files or glob patterns: of the split train
  std::map<std::string, std::vector<std::string>> split_files = {};  // the same by split; not with data_files
  std::string split = {};                                            // split expression; "" = train
  std::string ds_type = {};               // json, csv, text, parquet, arrow; "" = by extension
  std::string name = {};                  // configuration of a cached dataset: a folder of its snapshot
  std::string revision = {};              // of a cached dataset
  std::string field = {};                 // key of the rows inside one top-level object
  bool numbers = true;                    // CSV: columns of numbers are numbers, not texts
  std::vector<std::string> columns = {};  // of Parquet and Arrow, those that are read; empty: all
  // A YAML document as JSON text, for the card of a dataset; `where` names it in errors.
  std::string (*yaml_to_json)(const std::string& yaml, const std::string& where) = nullptr;
  // Hears what a reader has to say of a file: columns that have no JSON form.
  std::function<void(const std::string&)> tell = {};

  [[nodiscard]] bool has_data_files() const { return !data_files.empty() || !split_files.empty(); }
  // For error texts.
  [[nodiscard]] std::string label() const {
    if (!path.empty()) return path;
    if (!data_files.empty()) return data_files.front();
    return split_files.empty() || split_files.begin()->second.empty() ? "" : split_files.begin()->second.front();
  }
};

namespace detail {

namespace fs = std::filesystem;
using SplitFiles = std::map<std::string, std::vector<fs::path>>;

std::string lowered_extension(const fs::path& path);

// "json", "csv", "tsv", "text", "parquet" or "arrow"; raises for a format that is known and not read. "" = not a dataset file.
std::string format_of(const fs::path& path, const std::string& ds_type, bool strict);

[[nodiscard]] bool is_pattern(const std::string& path);

// The files that match, sorted by name.
std::vector<fs::path> expand_pattern(const std::string& pattern);

}  // namespace detail
}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/dataset_source_impl.hpp>
#endif
