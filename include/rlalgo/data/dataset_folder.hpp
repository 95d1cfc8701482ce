// The files of a dataset's folder by split: as `save_to_disk` wrote it, as its card says, or by their names.
//
// Order: `state.json` or `dataset_dict.json` → the shards that they list, in that order (a single data set is `train`, and the
// split that it was); else the configuration `name` of the card (`configs:` at the top of README.md, over which
// .huggingface.yaml comes), without a name its default one; else, of a dataset without such a card, the folder `name`; then
// names of files: `data/SPLIT-00000-of-00002.*` is a shard of SPLIT; else folders named train/training,
// validation/valid/val/dev, test/testing/eval/evaluation (between - _ . blank or digits); else files so named; else all files are
// `train`. Names that begin with a dot and folders that begin with __ are left out. Where Parquet or Arrow files stand
// beside texts, the more frequent kind counts (Parquet in a draw), and `tell` hears of the others.
//
// Source: datasets 5.2 (data_files, load, load_from_disk). Departures: several formats of text in one folder are all read;
// a configuration without a card may be a folder.
//
// Errors: [rlalgo.data.1] no dataset file; [rlalgo.data.42] the card, or a file of save_to_disk, is not what it should be;
// [rlalgo.data.43] `name` is no configuration, or is missing where there are several.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/dataset_source.hpp>

namespace rlalgo::data {

// Of `folder`; `source` has no data_files.
[[nodiscard]] detail::SplitFiles files_of_folder(const std::filesystem::path& folder, const DatasetSource& source);

// The columns that a dataset saved by save_to_disk shows, when `file` is a shard of one that hides some; else none.
[[nodiscard]] std::vector<std::string> columns_shown(const std::filesystem::path& file);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/dataset_folder_impl.hpp>
#endif
