// The files of one `datasets` entry: a file, a directory, a list of files or patterns, a format with data_files, or an
// id in the local cache.
//
// Decision order: `path` exists on disk → it; else `path` is the name of a format (json, csv, text, parquet, arrow) → `data_files`, read
// in that format; else `path` is a pattern (dir/*.jsonl) → the files that match it; else `path` is an id in the Hugging
// Face cache → its snapshot; else, no `path` at all → `data_files` by themselves. Relative `data_files` are looked for in
// the directory first, then in the working directory; there and in a format they are the split `train`, or those that a
// map of `data_files` names. Patterns: data/dataset_source.hpp. A directory is read by its own rules
// (data/dataset_folder.hpp).
// A plain file has only `train`. Nothing is downloaded.
//
// Source: axolotl 0.19 and datasets' load_dataset. Departures: the format is that of the file's own extension (before
// .gz and .zst), not by a substring of the whole path; a path-less entry with `data_files`, and a pattern as `path`, work; a file
// as `path` with `data_files` beside it, and a format as `path` with another `ds_type`, are refused, since one of the two
// would be ignored.
//
// Errors: [rlalgo.data.1] no such file, directory, pattern or cached id, or `path` and `data_files` do not go together;
// [rlalgo.data.6] a format that is not read.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/dataset_folder.hpp>
#include <rlalgo/data/dataset_source.hpp>
#include <rlalgo/data/hub_cache.hpp>

namespace rlalgo::data::detail {

// The format that a `path` such as json names: its rows are those of data_files. "" = none.
[[nodiscard]] std::string format_named_by(const DatasetSource& source);

// `data_files` entries in the order given, patterns expanded.
std::vector<fs::path> expand_data_files(const std::vector<std::string>& data_files, const fs::path& directory);

SplitFiles files_of(const DatasetSource& source);

}  // namespace rlalgo::data::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/dataset_files_impl.hpp>
#endif
