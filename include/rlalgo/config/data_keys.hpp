// Which rows are learned from, and in which order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/config/key.hpp>
#include <rlalgo/data/dataset.hpp>

namespace rlalgo::config {

// One entry of `datasets` or `test_datasets`; preprocess_shards makes an entry of each shard.
using DatasetConfig = data::Dataset;

struct DataConfig {
  std::vector<DatasetConfig> datasets;  // required
  std::vector<DatasetConfig> test_datasets;
  double val_set_size = 0.0;
  bool shuffle_merged_datasets = true;
  bool shuffle_before_merging_datasets = false;
  bool dataset_exact_deduplication = false;
  std::string excess_prompts = "raise";  // excess_length_strategy of prompts
  std::uint64_t seed = 42;               // (≠ axolotl shuffles unseeded when the key is absent)
};

// clang-format off
// The lists have readers of their own (config/detail/read_datasets.hpp).
[[nodiscard]] inline Keys data_keys(DataConfig& d) {
  return {
    key("datasets", "required: the rows, below").by("list", nullptr).free(resume::rows),
    key("test_datasets", "as `datasets`, for evaluation; excludes `val_set_size`").by("list", nullptr).free(resume::rows),
    key("val_set_size", d.val_set_size, "fraction of the shuffled rows held out: the last ⌈f·n⌉").within(at_least(0).below(1)),
    key("shuffle_merged_datasets", d.shuffle_merged_datasets, "order of NumPy's `default_rng(seed).permutation(n)`, as Hugging Face "
        "`datasets` shuffles"),
    key("shuffle_before_merging_datasets", d.shuffle_before_merging_datasets, "shuffle each of several entries first"),
    key("dataset_exact_deduplication", d.dataset_exact_deduplication, "drop repeated rows"),
    key("seed", d.seed, "of data order and of sampling").by("whole number", [&d](const Node& node) {
      std::int64_t seed = 0;
      detail::convert(node, "seed", seed);
      if (seed < 0) detail::raise_range("seed", node, "0 or more");
      d.seed = static_cast<std::uint64_t>(seed);
    }),
  };
}

// Of online methods whose prompts have a completion.
[[nodiscard]] inline Key prompt_length_key(DataConfig& d) {
  return key("excess_length_strategy", d.excess_prompts, "of prompts that leave no room for a completion: `raise` names their lines, "
      "`drop` leaves them out with a note. Of preferences see below").one_of({"raise", "drop"});
}
// clang-format on

}  // namespace rlalgo::config
