// The files of one `datasets` entry: a file, a directory, a list of files or patterns, a format with data_files, or an
// id in the local cache.
//
// Decision order: `path` exists on disk → it; else `path` is the name of a format (json, csv, text, parquet, arrow) → `data_files`, read
// in that format; else `path` is a pattern (dir/*.jsonl) → the files that match it; else `path` is an id in the Hugging
// Face cache → its snapshot; else, no `path` at all → `data_files` by themselves. Relative `data_files` are looked for in
// the directory first, then in the working directory; there and in a format they are the split `train`, or those that a
// map of `data_files` names. In a pattern `*`, `?` and `[…]` stay within a name, and `**` stands for folders at any depth;
// names that begin with a dot are matched by a dot only. A directory is read by its own rules (data/dataset_folder.hpp).
// A plain file has only `train`. Nothing is downloaded.
//
// Source: axolotl 0.19 and datasets' load_dataset. Departures: the format is told by the file's own extension (before
// .gz and .zst), not by a substring of the whole path; a path-less entry with `data_files`, and a pattern as `path`, work; a file
// as `path` with `data_files` beside it, and a format as `path` with another `ds_type`, are refused, since one of the two
// would be ignored.
//
// Errors: [rlalgo.data.1] no such file, directory, pattern or cached id, or `path` and `data_files` do not go together;
// [rlalgo.data.6] a format that is not read.
#pragma once

#include <glob.h>

#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/data/detail/input_file.hpp>
#include <rlalgo/data/hub_cache.hpp>

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

// The format that a `path` such as json names: its rows are those of data_files. "" = none.
[[nodiscard]] std::string format_named_by(const DatasetSource& source);

}  // namespace detail

namespace detail {

namespace fs = std::filesystem;
using SplitFiles = std::map<std::string, std::vector<fs::path>>;

std::string lowered_extension(const fs::path& path);

// "json", "csv", "tsv" or "text"; raises for a format that is known and not read. "" = not a dataset file.
std::string format_of(const fs::path& path, const std::string& ds_type, bool strict);

[[nodiscard]] bool is_pattern(const std::string& path);

// The files that match, sorted by name.
std::vector<fs::path> expand_pattern(const std::string& pattern);

// `data_files` entries in the order given, patterns expanded.
std::vector<fs::path> expand_data_files(const std::vector<std::string>& data_files, const fs::path& directory);

SplitFiles files_of(const DatasetSource& source);

}  // namespace detail
}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/dataset_files_impl.hpp>
#endif
