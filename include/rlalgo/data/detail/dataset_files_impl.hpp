// Definitions of dataset_files.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/dataset_files.hpp>
#include <rlalgo/data/dataset_folder.hpp>
#include <rlalgo/data/dataset_source.hpp>
#include <rlalgo/data/detail/input_file.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::data {

namespace detail {

RLALGO_INLINE std::vector<fs::path> expand_data_files(const std::vector<std::string>& data_files,
                                                      const fs::path& directory) {
  std::vector<fs::path> out;
  for (const std::string& entry : data_files) {
    std::vector<fs::path> found;
    if (!directory.empty() && fs::path(entry).is_relative()) found = expand_pattern((directory / entry).string());
    if (found.empty()) found = expand_pattern(entry);
    if (found.empty()) {
      core::raise("data", 1,
                  {.what = "dataset file not found",
                   .found = "nothing at \"" + entry + "\"",
                   .where = "data_files",
                   .remedy = directory.empty() ? "relative names are looked for in the working directory, " +
                                                     fs::current_path().string()
                                               : "relative names are looked for in " + directory.string() +
                                                     ", then in the working directory"});
    }
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

// The files of data_files, by split.
RLALGO_INLINE SplitFiles listed_files(const DatasetSource& source, const fs::path& directory) {
  if (!source.data_files.empty()) return {{"train", expand_data_files(source.data_files, directory)}};
  SplitFiles out;
  for (const auto& [split, files] : source.split_files) out[split] = expand_data_files(files, directory);
  return out;
}

RLALGO_INLINE std::string format_named_by(const DatasetSource& source) {
  static constexpr std::array<std::string_view, 11> builders = {
      "json", "csv", "text", "parquet", "arrow", "pandas", "xml", "webdataset", "sql", "imagefolder", "audiofolder"};
  if (std::find(builders.begin(), builders.end(), source.path) == builders.end() || os::exists(source.path)) return {};
  return source.path;
}

// The files of `path: json` and its kin.
RLALGO_INLINE SplitFiles files_of_format(const DatasetSource& source) {
  const std::string where = "datasets path \"" + source.path + "\"";
  static constexpr std::array<std::string_view, 5> read = {"json", "csv", "text", "parquet", "arrow"};
  if (std::find(read.begin(), read.end(), source.path) == read.end()) raise_unread_format(source.path, where);
  if (!source.has_data_files())
    core::raise("data", 1,
                {.what = "a datasets entry names a format and no files",
                 .found = "path: " + source.path,
                 .expected = "data_files: a file, a pattern, a list of them, or a map from split to them",
                 .where = where,
                 .remedy = "set datasets[].data_files, or give the file itself as path"});
  if (!source.ds_type.empty() && source.ds_type != source.path)
    core::raise("data", 6,
                {.what = "path and ds_type name two formats",
                 .found = "ds_type: " + source.ds_type,
                 .expected = source.path,
                 .where = where,
                 .remedy = "remove ds_type"});
  return listed_files(source, {});
}

RLALGO_INLINE SplitFiles files_of_pattern(const DatasetSource& source) {
  std::vector<fs::path> files = expand_pattern(source.path);
  if (files.empty() || source.has_data_files())
    core::raise(
        "data", 1,
        {.what =
             files.empty() ? "no dataset file matches the pattern" : "a pattern as path leaves no room for data_files",
         .found = files.empty() ? "no file" : source.label() + " and data_files",
         .where = "datasets path \"" + source.path + "\"",
         .remedy = files.empty() ? "relative patterns start from the working directory, " + fs::current_path().string()
                                 : "write all patterns as data_files, without path"});
  return {{"train", std::move(files)}};
}

RLALGO_INLINE SplitFiles files_of(const DatasetSource& source) {
  if (source.path.empty()) {
    if (!source.has_data_files())
      core::raise("data", 1,
                  {.what = "a datasets entry has neither path nor data_files", .remedy = "set datasets[].path"});
    return listed_files(source, {});
  }
  fs::path root = source.path;
  if (!os::exists(root)) {
    if (!format_named_by(source).empty()) return files_of_format(source);
    if (is_pattern(source.path)) return files_of_pattern(source);
    const auto cached = find_in_hub_cache(HubKind::datasets, source.path, source.revision);
    if (!cached) {
      core::raise("data", 1,
                  {.what = "the dataset is not there",
                   .found = "neither a file or directory nor a dataset in the cache",
                   .expected = "a local path, or an id under " + hub_cache_directory().string(),
                   .where = "datasets path \"" + source.path + "\"",
                   .remedy = is_hub_id(source.path)
                                 ? "nothing is downloaded unless you ask for it: rlalgo fetch --repo-type dataset " +
                                       source.path + (source.revision.empty() ? "" : " --revision " + source.revision)
                                 : "relative paths start from the working directory, " + fs::current_path().string()});
    }
    root = *cached;
  }
  if (os::is_directory(root))
    return source.has_data_files() ? listed_files(source, root) : files_of_folder(root, source);
  if (source.has_data_files())
    core::raise("data", 1,
                {.what = "path is a file, so data_files would not be read",
                 .found = source.path + " and data_files",
                 .where = "datasets path \"" + source.path + "\"",
                 .remedy = "name the file under data_files, without path, or remove data_files"});
  return {{"train", {root}}};
}

}  // namespace detail

}  // namespace rlalgo::data
