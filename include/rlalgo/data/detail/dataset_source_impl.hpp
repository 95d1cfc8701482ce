// Definitions of dataset_source.hpp.
#pragma once

#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/dataset_source.hpp>
#include <rlalgo/data/detail/input_file.hpp>

namespace rlalgo::data::detail {

RLALGO_INLINE std::string lowered_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

RLALGO_INLINE std::string format_of(const fs::path& path, const std::string& ds_type, bool strict) {
  static const std::map<std::string, std::string> formats = {
      {".json", "json"},   {".jsonl", "json"}, {".ndjson", "json"},     {"json", "json"},      {".csv", "csv"},
      {"csv", "csv"},      {".tsv", "tsv"},    {"tsv", "tsv"},          {".txt", "text"},      {"text", "text"},
      {".arrow", "arrow"}, {"arrow", "arrow"}, {".parquet", "parquet"}, {"parquet", "parquet"}};
  static const std::map<std::string, std::string> refused = {{".xz", "xz"}};
  const std::string outer = lowered_extension(path);
  const fs::path plain = outer == ".gz" || outer == ".zst" ? path.stem() : path;
  const std::string extension = lowered_extension(plain);
  const std::string key = ds_type.empty() ? extension : ds_type;
  if (const auto found = refused.find(key); found != refused.end()) {
    if (strict) raise_unread_format(found->second, path.string());
    return {};
  }
  if (ds_type == "csv" && extension == ".tsv") return "tsv";
  if (const auto found = formats.find(key); found != formats.end()) return found->second;
  if (ds_type.empty()) return strict ? "json" : "";
  core::raise("data", 6,
              {.what = "ds_type is not known",
               .found = ds_type,
               .expected = "json, csv, text, parquet or arrow",
               .where = path.string()});
}

RLALGO_INLINE bool is_pattern(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

using Names = std::vector<std::string>;

// Whether the names of a path, from `at` on, match those of a pattern, of which "**" is any number of folders.
RLALGO_INLINE bool matches(const Names& pattern, std::size_t in_pattern, const Names& path, std::size_t at) {
  if (in_pattern == pattern.size()) return at == path.size();
  if (pattern[in_pattern] == "**") {
    if (in_pattern + 1 == pattern.size()) return true;
    for (std::size_t from = at; from <= path.size(); ++from)
      if (matches(pattern, in_pattern + 1, path, from)) return true;
    return false;
  }
  return at < path.size() && ::fnmatch(pattern[in_pattern].c_str(), path[at].c_str(), FNM_PERIOD) == 0 &&
         matches(pattern, in_pattern + 1, path, at + 1);
}

// Of a pattern with "**", which glob(3) does not know. Folders whose names begin with a dot are left out.
RLALGO_INLINE std::vector<fs::path> expand_deep_pattern(const std::string& pattern) {
  fs::path root;
  Names names;
  for (const fs::path& part : fs::path(pattern)) {
    if (names.empty() && !is_pattern(part.string()))
      root /= part;
    else
      names.push_back(part.string());
  }
  std::vector<fs::path> out;
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(root.empty() ? fs::path(".") : root,
                                                fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
      continue;
    }
    if (!entry->is_regular_file(error)) continue;
    const fs::path below = entry->path().lexically_relative(root.empty() ? fs::path(".") : root);
    Names path;
    for (const fs::path& part : below) path.push_back(part.string());
    if (matches(names, 0, path, 0)) out.push_back(root / below);
  }
  std::sort(out.begin(), out.end());
  return out;
}

RLALGO_INLINE std::vector<fs::path> expand_pattern(const std::string& pattern) {
  if (pattern.find("**") != std::string::npos) return expand_deep_pattern(pattern);
  std::error_code error;
  glob_t matches{};
  std::vector<fs::path> out;
  if (::glob(pattern.c_str(), GLOB_TILDE, nullptr, &matches) == 0)
    for (std::size_t i = 0; i < matches.gl_pathc; ++i)
      if (!fs::is_directory(matches.gl_pathv[i], error)) out.emplace_back(matches.gl_pathv[i]);
  ::globfree(&matches);
  return out;  // sorted by glob
}

}  // namespace rlalgo::data::detail
