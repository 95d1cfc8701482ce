// The prompts of datasets: load, transform, merge, shuffle, deduplicate, split.
//
// Order as in axolotl: every entry is loaded and transformed, the entries are merged and shuffled with `seed`, exact
// duplicates are dropped, and the last ⌈val_set_size·n⌉ rows are held out; test_datasets are merged by the same rules
// and lose the rows that training has.
//
// Errors: those of data/load.hpp, data/transform.hpp, data/prompt.hpp and data/split.hpp.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/dataset_rows.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/data/dataset.hpp>
#include <rlalgo/data/load.hpp>
#include <rlalgo/data/matching_transform.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/split.hpp>
#include <rlalgo/data/transform.hpp>
#include <rlalgo/data/unread_columns.hpp>

namespace rlalgo::assembly {

struct PromptsConfig : DatasetsConfig {
  bool optional = false;         // an environment may say what there is to do, where a row does not
  bool columns_as_data = false;  // somebody plays the rows, and their columns are theirs: images among them
  bool to_functions = true;      // reward functions get the columns
};

namespace detail {

// Adds a note that is not there yet.
inline void note_once(std::string text, std::vector<std::string>& notes) {
  if (!text.empty() && std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(std::move(text));
}

// A column that only stands in a table while it is merged: which entry's chat template a row is for.
inline constexpr const char* template_mark =
    "\x1f"
    "template";

// Where the rows were read and what they are rendered with, without that column.
inline PromptRows take_rows(data::Table& table, const std::vector<data::Dataset>& entries) {
  PromptRows out;
  for (std::size_t i = 0; i < table.size(); ++i) {
    data::Json& row = table.row(i);
    const auto mark = row.find(template_mark);
    const bool marked = mark != row.end() && mark->is_number();
    out.origins.push_back(table.origin(i));
    out.templates.push_back(marked ? &entries.at(mark->get<std::size_t>()) : nullptr);
    row.erase(template_mark);
  }
  return out;
}

inline data::Table load_merged(const std::vector<data::Dataset>& entries, const std::string& key,
                               const DatasetsConfig& config, std::vector<std::string>& notes) {
  std::vector<data::Table> tables;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::string where = key + "[" + std::to_string(i) + "].type at " + entries[i].where;
    const std::vector<std::string>& ours = data::matching_transform_names();
    std::vector<std::string> builtin = data::transform_names();
    builtin.insert(builtin.end(), ours.begin(), ours.end());
    if (is_python_dataset(entries[i], builtin, config.search_paths)) {
      tables.push_back(load_python_dataset(entries[i], config, notes));
    } else if (note_once(note_of_builtin(entries[i], config.search_paths), notes);
               entries[i].type.is_string() &&
               std::find(ours.begin(), ours.end(), entries[i].type.get_ref<const std::string&>()) != ours.end()) {
      tables.push_back(
          data::matching_table(entries[i].type.get<std::string>(), load_rows(entries[i], config.seed, notes)));
    } else {
      const data::RowTransform transform = data::make_transform(entries[i].type, where);
      tables.push_back(load_rows(entries[i], config.seed, notes));
      data::transform_rows(transform, tables.back());
    }
    if (const std::string& tools = entries[i].fields.tools; tools != "tools")
      for (std::size_t r = 0; r < tables.back().size(); ++r)
        if (data::Json& row = tables.back().row(r); row.contains(tools)) {
          row["tools"] = data::Json(row[tools]);
          row.erase(tools);
        }
    if (!entries[i].has_template()) continue;
    for (std::size_t r = 0; r < tables.back().size(); ++r) tables.back().row(r)[template_mark] = i;
  }
  data::Table merged =
      data::merge(tables, {.seed = config.seed, .shuffle = config.shuffle, .shuffle_before = config.shuffle_each});
  if (!config.deduplicate) return merged;
  data::Table unique = data::deduplicated(merged);
  notes.push_back(key + ": " + std::to_string(merged.size() - unique.size()) + " duplicate rows dropped");
  return unique;
}

// Columns that reward functions do not get: their names are those of arguments that the run gives, or of the completion.
inline void note_reserved_columns(const data::Table& table, std::vector<std::string>& notes) {
  static constexpr const char* reserved[] = {"prompts",       "completions", "completion", "completion_ids",
                                             "trainer_state", "log_extra",   "log_metric"};
  std::string found;
  for (std::size_t i = 0; i < std::min<std::size_t>(table.size(), 1); ++i)
    for (const char* name : reserved)
      if (table.row(i).contains(name)) found += (found.empty() ? "" : ", ") + std::string(name);
  if (!found.empty())
    notes.push_back("warning: reward functions do not get the columns " + found + " (" + table.where(0) +
                    "): the names are those of what they are given");
}

// Where somebody plays a row, its columns are theirs.
inline void refuse_images(const data::Table& table) {
  for (std::size_t i = 0; i < table.size(); ++i) data::require_no_images(table.row(i), table.where(i));
}

}  // namespace detail

[[nodiscard]] inline Prompts load_prompts(const PromptsConfig& config) {
  Prompts out;
  const auto kept = std::make_shared<const DatasetsConfig>(config);
  out.datasets = kept;
  data::HeldOut rows;
  rows.train = detail::load_merged(config.train, "datasets", config, out.notes);
  if (!config.test.empty()) {
    rows.evaluation = detail::load_merged(config.test, "test_datasets", config, out.notes);
    if (config.deduplicate) rows.evaluation = data::deduplicated_against(rows.train, rows.evaluation);
  } else if (config.held_out > 0) {
    rows = data::hold_out(rows.train, config.held_out);
  }
  if (!config.columns_as_data) {
    detail::refuse_images(rows.train);
    detail::refuse_images(rows.evaluation);
  }
  if (config.to_functions) detail::note_reserved_columns(rows.train, out.notes);
  out.train_rows = detail::take_rows(rows.train, kept->train);
  out.evaluation_rows = detail::take_rows(rows.evaluation, kept->test.empty() ? kept->train : kept->test);
  out.train = data::prompts_of(rows.train, config.optional);
  out.evaluation = data::prompts_of(rows.evaluation, config.optional);
  return out;
}

}  // namespace rlalgo::assembly
