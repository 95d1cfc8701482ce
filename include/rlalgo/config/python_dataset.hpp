// Which `datasets[].type` is a user's Python function, and the rows that it makes (remote/python_transform.hpp).
//
// The built-in transforms keep their names. Any other `module.function` is Python, unless its module is one of ours and
// no file of that name lies in the working directory or beside the configuration: then it is a misspelt built-in. The
// function gets the keys of the configuration file. Its rows are held in memory.
//
// Departure from axolotl: a local file called chatml.py does not shadow the built-in chatml.*.
// Errors: those of remote/python_transform.hpp and data/load.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/regular_file.hpp>
#include <rlalgo/data/load.hpp>
#include <rlalgo/remote/python_transform.hpp>
#include <rlalgo/remote/reward_functions.hpp>

namespace rlalgo::config {

// The working directory, then that of the configuration file.
[[nodiscard]] inline std::vector<std::filesystem::path> python_search_paths(const RunConfig& c) {
  std::vector<std::filesystem::path> out = {std::filesystem::current_path()};
  if (c.file.empty()) return out;
  const auto beside = std::filesystem::absolute(c.file).parent_path();
  if (beside != out.front()) out.push_back(beside);
  return out;
}

// `builtin`: the names of the transforms that the recipe knows.
[[nodiscard]] inline bool is_python_dataset(const DatasetConfig& entry, const std::vector<std::string>& builtin,
                                            const RunConfig& c) {
  if (!entry.type.is_string()) return false;
  const std::string& name = entry.type.get_ref<const std::string&>();
  if (name.find('.') == std::string::npos || std::find(builtin.begin(), builtin.end(), name) != builtin.end())
    return false;
  static constexpr std::array<std::string_view, 7> ours = {"chatml",      "llama3",       "zephyr", "chat_template",
                                                           "passthrough", "user_defined", "rewards"};
  const std::string module = name.substr(0, name.find('.'));
  return remote::module_exists(name, python_search_paths(c)) ||
         (std::find(ours.begin(), ours.end(), module) == ours.end() && !module.starts_with("ebft_"));
}

// The file of the function's module, for cache keys; empty when it is not in the search paths.
[[nodiscard]] inline std::filesystem::path python_file(const std::string& function, const RunConfig& c) {
  std::string module = function.substr(0, function.rfind('.'));
  std::replace(module.begin(), module.end(), '.', '/');
  std::error_code absent;
  for (const auto& path : python_search_paths(c))
    for (const char* ending : {".py", "/__init__.py"})
      if (const auto file = path / (module + ending); std::filesystem::is_regular_file(file, absent)) return file;
  return {};
}

// Entry number `index` of a list, transformed.
[[nodiscard]] inline data::Table load_python_dataset(const DatasetConfig& entry, std::size_t index,
                                                     const RunConfig& c) {
  std::filesystem::path tokenizer = c.tokenizer_config.value_or(c.base_model);
  if (!core::exists(tokenizer))
    tokenizer = data::find_in_hub_cache(data::HubKind::models, tokenizer.string(), c.model_revision.value_or(""))
                    .value_or(tokenizer);
  remote::PythonTransform transform(entry.type.get<std::string>(), c.keys,
                                    {.search_paths = python_search_paths(c),
                                     .tokenizer = tokenizer,
                                     .dataset_index = static_cast<std::int64_t>(index)});
  return transform(data::load(entry.source));
}

}  // namespace rlalgo::config
