// The rows of datasets: which `type` is a user's Python function, and the rows that it makes (remote/python_transform.hpp).
//
// A name is the user's function wherever a file of theirs has it (remote/user_function.hpp), also where a built-in has
// that name, and `name` alone means name.default; as in axolotl. Any other `module.function` is a built-in, or Python,
// unless its module is one of ours: then it is a misspelt built-in. The function gets the keys of the run. Its rows are held in memory.
//
// Errors: those of remote/python_transform.hpp and data/load.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/assembly/model_places.hpp>
#include <rlalgo/data/dataset.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/data/load.hpp>
#include <rlalgo/data/shard.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/remote/python_transform.hpp>
#include <rlalgo/remote/user_function.hpp>

namespace rlalgo::assembly {

// Where modules of the user's are looked for: the working directory, then that of the configuration file, if there is one.
[[nodiscard]] inline std::vector<std::filesystem::path> python_search_paths(const std::filesystem::path& config_file) {
  std::vector<std::filesystem::path> out = {std::filesystem::current_path()};
  if (config_file.empty()) return out;
  const auto beside = std::filesystem::absolute(config_file).parent_path();
  if (beside != out.front()) out.push_back(beside);
  return out;
}

// What datasets have in common: which are read, and how their rows become those of training and of evaluation.
struct DatasetsConfig {
  std::vector<data::Dataset> train = {}, test = {};  // without `test` a part of the rows is held out
  double held_out = 0.0;                             // fraction of the shuffled rows of training
  bool shuffle = true;                               // the merged rows, as Hugging Face datasets does
  bool shuffle_each = false;                         // each of several datasets before that
  bool deduplicate = false;
  std::uint64_t seed = 42;
  // Of Python functions that make rows:
  std::vector<std::filesystem::path> search_paths = python_search_paths({});
  data::Json keys = nullptr;  // what they are given of the run
  NamedModel tokenizer = {};  // as `tokenizer` of theirs; a directory, an id in the cache, or a name
};

// The function that a `type` names: without a dot it is `default`, as in axolotl. Empty: the type is no name.
[[nodiscard]] inline std::string function_of(const data::Json& type) {
  if (!type.is_string() || type.get_ref<const std::string&>().empty()) return {};
  const std::string& name = type.get_ref<const std::string&>();
  return name.find('.') == std::string::npos ? name + ".default" : name;
}

// `builtin`: the names of the transforms that the recipe knows.
[[nodiscard]] inline bool is_python_dataset(const data::Dataset& entry, const std::vector<std::string>& builtin,
                                            const std::vector<std::filesystem::path>& places) {
  const std::string function = function_of(entry.type);
  if (function.empty()) return false;
  if (remote::user_has(function, places)) return true;
  const std::string& name = entry.type.get_ref<const std::string&>();
  const auto known = [&](const std::string& text) {
    return std::find(builtin.begin(), builtin.end(), text) != builtin.end();
  };
  if (known(name) || known(function) || name.find('.') == std::string::npos) return false;
  static constexpr std::array<std::string_view, 7> ours = {"chatml",      "llama3",       "zephyr", "chat_template",
                                                           "passthrough", "user_defined", "rewards"};
  const std::string module = name.substr(0, name.find('.'));
  return !remote::module_file(function, places).empty() ||
         (std::find(ours.begin(), ours.end(), module) == ours.end() && !module.starts_with("ebft_"));
}

// What the log says of a built-in that has the name of a function which a file of theirs might have had: always
// where axolotl knows no such name, and where there is a file of that name; else empty.
[[nodiscard]] inline std::string note_of_builtin(const data::Dataset& entry,
                                                 const std::vector<std::filesystem::path>& places) {
  const std::string function = function_of(entry.type);
  if (function.empty() || (!function.starts_with("rewards.") && remote::module_file(function, places).empty()))
    return {};
  return "type: " + entry.type.get<std::string>() +
         " is the built-in transform: " + remote::absent_in(function, places);
}

// The source of an entry, whose readers add what they have to say of its files to `notes`, once each.
[[nodiscard]] inline data::DatasetSource noted_source(const data::Dataset& entry, std::vector<std::string>& notes) {
  data::DatasetSource out = entry.source;
  out.tell = [&notes](const std::string& line) {
    if (std::find(notes.begin(), notes.end(), line) == notes.end()) notes.push_back(line);
  };
  return out;
}

// The rows of an entry, or of its shard.
[[nodiscard]] inline data::Table load_rows(const data::Dataset& entry, std::uint64_t seed,
                                           std::vector<std::string>& notes) {
  data::Table rows = data::load(noted_source(entry, notes));
  if (entry.shard.whole()) return rows;
  return rows.selected(data::rows_of_shard(rows.size(), entry.shard, seed, entry.where));
}

// The rows of an entry, transformed.
[[nodiscard]] inline data::Table load_python_dataset(const data::Dataset& entry, const DatasetsConfig& c,
                                                     std::vector<std::string>& notes) {
  std::filesystem::path tokenizer = c.tokenizer.name;
  if (!os::exists(tokenizer))
    tokenizer =
        data::find_in_hub_cache(data::HubKind::models, tokenizer.string(), c.tokenizer.revision).value_or(tokenizer);
  remote::PythonTransform transform(function_of(entry.type), c.keys,
                                    {.search_paths = c.search_paths,
                                     .tokenizer = tokenizer,
                                     .dataset_index = static_cast<std::int64_t>(entry.index)});
  return transform(load_rows(entry, c.seed, notes));
}

}  // namespace rlalgo::assembly
