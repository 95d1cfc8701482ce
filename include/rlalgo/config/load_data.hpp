// The prompts that a configuration names: load, transform, merge, shuffle, deduplicate, split.
//
// Order as in axolotl: every entry is loaded and transformed, the entries are merged and shuffled with `seed`, exact
// duplicates are dropped, and the last ⌈val_set_size·n⌉ rows are held out; test_datasets are merged by the same rules
// and lose the rows that training has.
//
// Errors: those of data/load.hpp, data/transform.hpp, data/prompt.hpp and data/split.hpp.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/python_dataset.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/regular_file.hpp>
#include <rlalgo/data/load.hpp>
#include <rlalgo/data/matching_transform.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/split.hpp>
#include <rlalgo/data/transform.hpp>

namespace rlalgo::config {

struct Prompts {
  std::vector<data::TokenizedPrompt> train;       // `ids` still empty; `row` counts from 0 in each list
  std::vector<data::TokenizedPrompt> evaluation;  // empty: no evaluation data
  std::vector<std::string> notes;                 // for the user: what was read and what was dropped
};

namespace detail {

// A transform named like a Python function is the built-in one, even when the function exists beside the run.
inline void note_shadowed_python(const data::Json& type, std::vector<std::string>& notes) {
  if (!type.is_string()) return;
  const std::string& name = type.get_ref<const std::string&>();
  const std::string function = name.substr(name.find('.') + 1);
  const std::string file = name.substr(0, name.find('.')) + ".py";
  constexpr std::uint64_t most = std::uint64_t{1} << 20U;  // bytes of a module that is looked into
  const std::string text = core::read_regular_file(file, most).text;
  if (text.find("def " + function) != std::string::npos)
    notes.push_back("datasets type " + name + " is the built-in transform; the function of that name in " + file +
                    " is not run");
}

inline data::Table load_merged(const std::vector<DatasetConfig>& entries, const std::string& key,
                               const RunConfig& config, std::vector<std::string>& notes) {
  std::vector<data::Table> tables;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string where = key + "[" + std::to_string(i) + "].type at " + entries[i].place.text();
    if (is_python_dataset(entries[i], data::transform_names(), config)) {
      tables.push_back(load_python_dataset(entries[i], i, config));
      continue;
    }
    const std::vector<std::string>& ours = data::matching_transform_names();
    if (entries[i].type.is_string() &&
        std::find(ours.begin(), ours.end(), entries[i].type.get_ref<const std::string&>()) != ours.end()) {
      tables.push_back(data::matching_table(entries[i].type.get<std::string>(), data::load(entries[i].source)));
      continue;
    }
    const data::RowTransform transform = data::make_transform(entries[i].type, where);
    tables.push_back(data::load(entries[i].source));
    data::transform_rows(transform, tables.back());
    note_shadowed_python(entries[i].type, notes);
  }
  data::Table merged = data::merge(tables, {.seed = config.seed,
                                            .shuffle = config.shuffle_merged_datasets,
                                            .shuffle_before = config.shuffle_before_merging_datasets});
  if (!config.dataset_exact_deduplication) return merged;
  data::Table unique = data::deduplicated(merged);
  notes.push_back(key + ": " + std::to_string(merged.size() - unique.size()) + " duplicate rows dropped");
  return unique;
}

}  // namespace detail

[[nodiscard]] inline Prompts load_prompts(const RunConfig& config) {
  Prompts out;
  data::HeldOut rows;
  rows.train = detail::load_merged(config.datasets, "datasets", config, out.notes);
  if (!config.test_datasets.empty()) {
    rows.evaluation = detail::load_merged(config.test_datasets, "test_datasets", config, out.notes);
    if (config.dataset_exact_deduplication) rows.evaluation = data::deduplicated_against(rows.train, rows.evaluation);
  } else if (config.val_set_size > 0) {
    rows = data::hold_out(rows.train, config.val_set_size);
  }
  out.train = data::prompts_of(rows.train);
  out.evaluation = data::prompts_of(rows.evaluation);
  return out;
}

}  // namespace rlalgo::config
