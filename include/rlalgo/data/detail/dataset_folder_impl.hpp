// Definitions of dataset_folder.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/nearest.hpp>
#include <rlalgo/data/dataset_folder.hpp>
#include <rlalgo/data/dataset_source.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::data {

namespace detail {

using CardJson = nlohmann::ordered_json;

[[noreturn]] inline void raise_card(const std::string& what, const std::string& found, const fs::path& where,
                                    const std::string& expected = {}) {
  core::raise("data", 42, {.what = what, .found = found, .expected = expected, .where = where.string()});
}

// --- save_to_disk -------------------------------------------------------------------------------------------------

// The object that the file holds.
inline CardJson read_state(const fs::path& file) {
  constexpr std::uint64_t longest = std::uint64_t{64} << 20;  // bytes; a line for each shard
  const auto read = os::read_regular_file(file, longest);
  if (!read.problem.empty()) raise_card("a file that save_to_disk wrote cannot be read", read.problem, file);
  auto [value, problem] = core::read_json<CardJson>(read.text);
  if (!problem.text.empty() || !value.is_object())
    raise_card("a file that save_to_disk wrote is no JSON object", problem.text, file);
  return std::move(value);
}

inline std::vector<fs::path> saved_shards(const fs::path& folder, const CardJson& state) {
  const fs::path file = folder / "state.json";
  const auto list = state.find("_data_files");
  if (list == state.end() || !list->is_array())
    raise_card("the state of a saved dataset names no files", "no list _data_files", file);
  if (const auto indices = state.find("_indices_data_files");
      indices != state.end() && !indices->is_null() && !indices->empty())
    raise_card("a dataset saved with indices beside its rows is not read", "_indices_data_files", file,
               "one that flatten_indices() and save_to_disk() have written");
  std::vector<fs::path> out;
  for (const CardJson& item : *list) {
    const auto name = item.find("filename");
    if (name == item.end() || !name->is_string())
      raise_card("the state of a saved dataset names no file", item.dump(), file, "{\"filename\": …}");
    const fs::path shard = folder / fs::path(name->get<std::string>()).filename();
    if (!os::exists(shard)) raise_card("a file of the saved dataset is missing", shard.filename().string(), file);
    out.push_back(shard);
  }
  if (out.empty()) raise_card("the saved dataset has no files", "an empty list _data_files", file);
  return out;
}

inline SplitFiles saved_files(const fs::path& folder) {
  SplitFiles out;
  if (os::exists(folder / "dataset_dict.json")) {
    const fs::path file = folder / "dataset_dict.json";
    const CardJson dictionary = read_state(file);
    const auto splits = dictionary.find("splits");
    if (splits == dictionary.end() || !splits->is_array())
      raise_card("the dictionary of a saved dataset names no splits", "no list splits", file);
    for (const CardJson& split : *splits) {
      if (!split.is_string() || split.get<std::string>().find('/') != std::string::npos)
        raise_card("the dictionary of a saved dataset names a split that is no name", split.dump(), file);
      const fs::path part = folder / split.get<std::string>();
      out[split.get<std::string>()] = saved_shards(part, read_state(part / "state.json"));
    }
    return out;
  }
  const CardJson state = read_state(folder / "state.json");
  const std::vector<fs::path> shards = saved_shards(folder, state);
  if (const auto split = state.find("_split"); split != state.end() && split->is_string())
    out[split->get<std::string>()] = shards;
  out["train"] = shards;
  return out;
}

// A folder of data may have a state.json of its own; that of a dataset lists files.
inline bool is_saved(const fs::path& folder) {
  if (os::is_regular_file(folder / "dataset_dict.json")) return true;
  if (!os::is_regular_file(folder / "state.json")) return false;
  return read_state(folder / "state.json").contains("_data_files");
}

// --- the card -----------------------------------------------------------------------------------------------------

// The lines between "---" at the top of README.md.
inline std::string front_matter(const std::string& readme) {
  std::size_t at = readme.starts_with("\xef\xbb\xbf") ? 3 : 0;
  const auto line = [&] {
    const std::size_t end = std::min(readme.find('\n', at), readme.size());
    std::string text = readme.substr(at, end - at);
    at = std::min(end + 1, readme.size());
    if (!text.empty() && text.back() == '\r') text.pop_back();
    return text;
  };
  if (line() != "---") return {};
  std::string out;
  while (at < readme.size()) {
    const std::string text = line();
    if (text == "---") return out;
    out += text + "\n";
  }
  return {};
}

// The list `configs` of the folder's card; null: it has none.
inline CardJson card_configs(const fs::path& folder, const DatasetSource& source) {
  constexpr std::uint64_t longest = std::uint64_t{16} << 20;  // bytes
  CardJson out;
  for (const char* name : {"README.md", ".huggingface.yaml"}) {
    const fs::path file = folder / name;
    if (!os::is_regular_file(file)) continue;
    const auto read = os::read_regular_file(file, longest);
    if (!read.problem.empty()) raise_card("the dataset's card cannot be read", read.problem, file);
    const std::string yaml = file.extension() == ".md" ? front_matter(read.text) : read.text;
    if (yaml.find("configs") == std::string::npos) continue;
    if (source.yaml_to_json == nullptr)
      raise_card("the dataset's card has configurations, and nothing is given that reads YAML", name, file,
                 "DatasetSource::yaml_to_json, or data_files");
    const CardJson card = CardJson::parse(source.yaml_to_json(yaml, file.string()), nullptr, false);
    if (!card.is_object()) continue;
    if (const auto configs = card.find("configs"); configs != card.end() && !configs->is_null()) out = *configs;
  }
  return out;
}

inline std::vector<std::string> card_patterns(const CardJson& paths, const fs::path& where) {
  if (paths.is_string()) return {paths.get<std::string>()};
  std::vector<std::string> out;
  for (const CardJson& path : paths) {
    if (!path.is_string()) raise_card("a path of the dataset's card is no text", path.dump(), where);
    out.push_back(path.get<std::string>());
  }
  return out;
}

// The files that patterns of the card name: below its folder only.
inline std::vector<fs::path> card_files(const std::vector<std::string>& patterns, const fs::path& folder,
                                        const std::string& config) {
  std::vector<fs::path> out;
  for (const std::string& pattern : patterns) {
    if (pattern.find("://") != std::string::npos || fs::path(pattern).is_absolute() ||
        fs::path(pattern).lexically_normal().string().starts_with(".."))
      raise_card("the dataset's card names files elsewhere", pattern, folder / "README.md", "files of its folder");
    std::vector<fs::path> found;
    if (os::is_regular_file(folder / pattern))
      found = {folder / pattern};
    else
      for (const fs::path& file : expand_pattern((folder / pattern).string()))
        if (os::is_regular_file(file) && !format_of(file, "", false).empty()) found.push_back(file);
    if (found.empty())
      core::raise("data", 1,
                  {.what = "files of the dataset's configuration are not there",
                   .found = "nothing at \"" + pattern + "\" (configuration " + config + ")",
                   .where = folder.string(),
                   .remedy = "fetch the whole dataset"});
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

// The configuration that `source` means.
inline const CardJson& chosen_config(const CardJson& configs, const DatasetSource& source, const fs::path& readme) {
  if (!configs.is_array()) raise_card("configs of the dataset's card is no list", configs.dump(), readme);
  std::vector<std::string> names;
  const CardJson* chosen = nullptr;
  std::string defaults;
  for (const CardJson& config : configs) {
    const auto name = config.is_object() ? config.find("config_name") : config.end();
    if (!config.is_object() || name == config.end() || !name->is_string())
      raise_card("a configuration of the dataset's card has no config_name", config.dump(), readme);
    names.push_back(name->get<std::string>());
    const auto marked = config.find("default");
    const bool is_default = configs.size() == 1 || names.back() == "default" ||
                            (marked != config.end() && marked->is_boolean() && marked->get<bool>());
    if (source.name.empty() && is_default) {
      if (chosen != nullptr)
        raise_card("the dataset's card has several default configurations", defaults + ", " + names.back(), readme);
      chosen = &config;
      defaults = names.back();
    }
    if (names.back() == source.name) chosen = &config;
  }
  if (chosen != nullptr) return *chosen;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  const std::string nearest = source.name.empty() ? "" : core::nearest_name(source.name, names);
  core::raise("data", 43,
              {.what = source.name.empty() ? "the dataset has several configurations and no default one"
                                           : "the dataset has no configuration of that name",
               .found = source.name.empty() ? "no name" : source.name,
               .expected = list,
               .where = readme.string(),
               .remedy = nearest.empty() ? "set datasets[].name" : "did you mean " + nearest + "?"});
}

SplitFiles discover(const fs::path& directory, const DatasetSource& source);

inline SplitFiles configured_files(const CardJson& configs, const fs::path& folder, const DatasetSource& source) {
  const fs::path readme = folder / "README.md";
  const CardJson& config = chosen_config(configs, source, readme);
  const std::string name = config["config_name"].get<std::string>();
  std::string ignored;
  for (const auto& [key, value] : config.items()) {
    static constexpr std::array<std::string_view, 8> known = {"config_name", "data_files",  "data_dir", "default",
                                                              "version",     "description", "features", "drop_labels"};
    if (std::find(known.begin(), known.end(), key) == known.end()) ignored += (ignored.empty() ? "" : ", ") + key;
  }
  if (!ignored.empty() && source.tell)
    source.tell("warning: " + readme.string() + ": the configuration " + name + " sets " + ignored +
                ", which nothing reads");
  const auto data_dir = config.find("data_dir");
  const auto files = config.find("data_files");
  if (files == config.end() || files->is_null())
    return discover(data_dir != config.end() && data_dir->is_string() ? folder / data_dir->get<std::string>() : folder,
                    source);
  SplitFiles out;
  if (files->is_object()) {
    for (const auto& [split, paths] : files->items())
      out[split] = card_files(card_patterns(paths, readme), folder, name);
    return out;
  }
  const bool by_split = files->is_array() && std::any_of(files->begin(), files->end(),
                                                         [](const CardJson& item) { return item.is_object(); });
  if (!by_split) return {{"train", card_files(card_patterns(*files, readme), folder, name)}};
  for (const CardJson& item : *files) {
    if (!item.is_object() || !item.contains("split") || !item["split"].is_string() || !item.contains("path"))
      raise_card("data_files of the dataset's card is not understood", item.dump(), readme, "{split: …, path: …}");
    const std::string split = item["split"].get<std::string>();
    if (out.contains(split)) raise_card("the dataset's card has a split twice", split, readme);
    out[split] = card_files(card_patterns(item["path"], readme), folder, name);
  }
  return out;
}

// --- names of files -----------------------------------------------------------------------------------------------

inline constexpr std::array<std::pair<std::string_view, std::string_view>, 10> split_words = {
    {{"train", "train"},
     {"training", "train"},
     {"validation", "validation"},
     {"valid", "validation"},
     {"val", "validation"},
     {"dev", "validation"},
     {"test", "test"},
     {"testing", "test"},
     {"eval", "test"},
     {"evaluation", "test"}}};

inline bool separates(char c) { return std::string_view("-._ 0123456789").find(c) != std::string_view::npos; }

// Whether `name` holds `word` between separators; its end counts as one where `whole`.
inline bool names_split(const std::string& name, std::string_view word, bool whole) {
  for (std::size_t at = name.find(word); at != std::string::npos; at = name.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || separates(name[at - 1])) && (end == name.size() ? whole : separates(name[end]))) return true;
  }
  return false;
}

// SPLIT of data/SPLIT-00000-of-00002.ext; "" = no such name.
inline std::string shard_split(const fs::path& below) {
  if (below.parent_path() != "data") return {};
  const std::string name = below.filename().string();
  for (std::size_t at = name.find("-of-"); at != std::string::npos; at = name.find("-of-", at + 1)) {
    const auto digits = [&](std::size_t from) {
      return from + 5 <= name.size() && std::all_of(name.begin() + static_cast<std::ptrdiff_t>(from),
                                                    name.begin() + static_cast<std::ptrdiff_t>(from + 5),
                                                    [](char c) { return c >= '0' && c <= '9'; });
    };
    if (at < 7 || name[at - 6] != '-' || !digits(at - 5) || !digits(at + 4)) continue;
    if (name.find('.', at + 9) == std::string::npos) continue;
    return name.substr(0, at - 6);
  }
  return {};
}

inline SplitFiles by_names(const std::vector<fs::path>& files, const fs::path& directory) {
  SplitFiles out;
  for (const fs::path& file : files)
    if (const std::string split = shard_split(file.lexically_relative(directory)); !split.empty())
      out[split].push_back(file);
  if (!out.empty()) return out;
  const auto add = [&](const fs::path& file, const auto& named) {
    for (const std::string_view split : {"train", "validation", "test"})
      if (std::any_of(split_words.begin(), split_words.end(),
                      [&](const auto& word) { return word.second == split && named(word.first); }))
        out[std::string(split)].push_back(file);
  };
  for (const fs::path& file : files)
    add(file, [&](std::string_view word) {
      const fs::path folders = file.lexically_relative(directory).parent_path();
      return std::any_of(folders.begin(), folders.end(),
                         [&](const fs::path& folder) { return names_split(folder.string(), word, true); });
    });
  if (out.empty())
    for (const fs::path& file : files)
      add(file, [&](std::string_view word) { return names_split(file.filename().string(), word, false); });
  if (out.empty()) out["train"] = files;
  return out;
}

// Where columnar files stand beside texts: those of the kind that there are more of.
inline void keep_one_kind(std::vector<fs::path>& files, const std::string& split, const DatasetSource& source) {
  std::map<std::string, std::size_t> counts;
  for (const fs::path& file : files) {
    const std::string format = format_of(file, "", false);
    ++counts[format == "parquet" || format == "arrow" ? format : "text"];
  }
  if (counts.size() < 2) return;
  std::string kept = "text";
  for (const char* format : {"arrow", "parquet"})
    if (counts[format] >= counts[kept]) kept = format;
  std::string left;
  std::size_t number = 0;
  std::erase_if(files, [&](const fs::path& file) {
    const std::string format = format_of(file, "", false);
    if ((format == "parquet" || format == "arrow" ? format : "text") == kept) return false;
    if (++number <= 3) left += (left.empty() ? "" : ", ") + file.filename().string();
    return true;
  });
  if (source.tell)
    source.tell("warning: split " + split + " has files of several kinds; " + kept + " files are read, " +
                std::to_string(number) + " others are not (" + left + (number > 3 ? ", …" : "") +
                "); ds_type or data_files choose others");
}

RLALGO_INLINE SplitFiles discover(const fs::path& directory, const DatasetSource& source) {
  static constexpr std::array<std::string_view, 6> ignored = {
      "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "dummy_data.zip"};
  std::vector<fs::path> files;
  fs::path unread;
  std::error_code error;  // of a link that leads nowhere: no file
  auto entry = fs::recursive_directory_iterator(directory, fs::directory_options::skip_permission_denied);
  for (; entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with('.') || (entry->is_directory(error) && name.starts_with("__"))) {
      entry.disable_recursion_pending();
      continue;
    }
    if (!entry->is_regular_file(error) || std::find(ignored.begin(), ignored.end(), name) != ignored.end()) continue;
    const std::string format = format_of(entry->path(), "", false);
    if (!format.empty() && (source.ds_type.empty() || format_of(entry->path(), source.ds_type, false) == format))
      files.push_back(entry->path());
    if (format.empty() && entry->path().has_extension() && lowered_extension(entry->path()) != ".md")
      unread = entry->path();
  }
  if (files.empty()) {
    if (!unread.empty()) format_of(unread, "", true);
    core::raise("data", 1,
                {.what = "the dataset directory holds no dataset file",
                 .expected = ".parquet, .arrow, .json, .jsonl, .csv, .tsv or .txt files, the texts also as .gz or .zst",
                 .where = directory.string()});
  }
  std::sort(files.begin(), files.end());
  SplitFiles out = by_names(files, directory);
  for (auto& [split, list] : out) keep_one_kind(list, split, source);
  return out;
}

}  // namespace detail

RLALGO_INLINE detail::SplitFiles files_of_folder(const std::filesystem::path& folder, const DatasetSource& source) {
  if (detail::is_saved(folder)) return detail::saved_files(folder);
  const nlohmann::ordered_json configs = detail::card_configs(folder, source);
  if (!configs.is_null()) return detail::configured_files(configs, folder, source);
  if (source.name.empty() || source.name == "default") return detail::discover(folder, source);
  if (!os::is_directory(folder / source.name))
    core::raise("data", 43,
                {.what = "the dataset has no configuration of that name",
                 .found = source.name,
                 .expected = "default: its card lists none, and there is no such folder",
                 .where = folder.string(),
                 .remedy = "remove datasets[].name"});
  return detail::discover(folder / source.name, source);
}

RLALGO_INLINE std::vector<std::string> columns_shown(const std::filesystem::path& file) {
  const std::filesystem::path state_file = file.parent_path() / "state.json";
  if (!os::is_regular_file(state_file)) return {};
  const nlohmann::ordered_json state = detail::read_state(state_file);
  const auto columns = state.find("_format_columns");
  if (columns == state.end() || !columns->is_array()) return {};
  std::vector<std::string> out;
  for (const auto& column : *columns)
    if (column.is_string()) out.push_back(column.get<std::string>());
  return out;
}

}  // namespace rlalgo::data
