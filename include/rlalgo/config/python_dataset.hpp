// Which `datasets[].type` is a user's Python function, and the rows that it makes (remote/python_transform.hpp).
//
// A name is the user's function wherever a file of theirs has it (remote/user_function.hpp), also where a built-in has
// that name, and `name` alone means name.default; as in axolotl. Any other `module.function` is a built-in, or Python,
// unless its module is one of ours: then it is a misspelt built-in. The function gets the keys of the configuration
// file. Its rows are held in memory.
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

#include <rlalgo/config/run_config.hpp>
#include <rlalgo/data/load.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/remote/python_transform.hpp>
#include <rlalgo/remote/user_function.hpp>

namespace rlalgo::config {

// The working directory, then that of the configuration file.
[[nodiscard]] inline std::vector<std::filesystem::path> python_search_paths(const std::filesystem::path& config_file) {
  std::vector<std::filesystem::path> out = {std::filesystem::current_path()};
  if (config_file.empty()) return out;
  const auto beside = std::filesystem::absolute(config_file).parent_path();
  if (beside != out.front()) out.push_back(beside);
  return out;
}
[[nodiscard]] inline std::vector<std::filesystem::path> python_search_paths(const RunConfig& c) {
  return python_search_paths(std::filesystem::path(c.file));
}

// The function that a `type` names: without a dot it is `default`, as in axolotl. Empty: the type is no name.
[[nodiscard]] inline std::string function_of(const data::Json& type) {
  if (!type.is_string() || type.get_ref<const std::string&>().empty()) return {};
  const std::string& name = type.get_ref<const std::string&>();
  return name.find('.') == std::string::npos ? name + ".default" : name;
}

// `builtin`: the names of the transforms that the recipe knows.
[[nodiscard]] inline bool is_python_dataset(const DatasetConfig& entry, const std::vector<std::string>& builtin,
                                            const RunConfig& c) {
  const std::string function = function_of(entry.type);
  if (function.empty()) return false;
  const std::vector<std::filesystem::path> places = python_search_paths(c);
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

// What the user is told of a built-in that has the name of a function which a file of theirs might have had: always
// where axolotl knows no such name, and where there is a file of that name; else empty.
[[nodiscard]] inline std::string note_of_builtin(const DatasetConfig& entry, const RunConfig& c) {
  const std::string function = function_of(entry.type);
  const std::vector<std::filesystem::path> places = python_search_paths(c);
  if (function.empty() || (!function.starts_with("rewards.") && remote::module_file(function, places).empty()))
    return {};
  return "type: " + entry.type.get<std::string>() +
         " is the built-in transform: " + remote::absent_in(function, places);
}

// The file of the function's module, for cache keys; empty when it is not in the search paths.
[[nodiscard]] inline std::filesystem::path python_file(const std::string& function, const RunConfig& c) {
  return remote::module_file(function, python_search_paths(c));
}

// The source of an entry, whose readers add what they have to say of its files to `notes`, once each.
[[nodiscard]] inline data::DatasetSource noted_source(const DatasetConfig& entry, std::vector<std::string>& notes) {
  data::DatasetSource out = entry.source;
  out.tell = [&notes](const std::string& line) {
    if (std::find(notes.begin(), notes.end(), line) == notes.end()) notes.push_back(line);
  };
  return out;
}

// The rows of an entry, or of its shard.
[[nodiscard]] inline data::Table load_rows(const DatasetConfig& entry, const RunConfig& c,
                                           std::vector<std::string>& notes) {
  data::Table rows = data::load(noted_source(entry, notes));
  if (entry.shard.whole()) return rows;
  return rows.selected(data::rows_of_shard(rows.size(), entry.shard, c.seed, entry.place.text()));
}

// The rows of an entry, transformed.
[[nodiscard]] inline data::Table load_python_dataset(const DatasetConfig& entry, const RunConfig& c,
                                                     std::vector<std::string>& notes) {
  std::filesystem::path tokenizer = c.tokenizer_config.value_or(c.base_model);
  if (!os::exists(tokenizer))
    tokenizer = data::find_in_hub_cache(data::HubKind::models, tokenizer.string(), c.model_revision.value_or(""))
                    .value_or(tokenizer);
  remote::PythonTransform transform(function_of(entry.type), c.keys,
                                    {.search_paths = python_search_paths(c),
                                     .tokenizer = tokenizer,
                                     .dataset_index = static_cast<std::int64_t>(entry.index)});
  return transform(load_rows(entry, c, notes));
}

}  // namespace rlalgo::config
