// A model's files into a directory that may have others: built in a folder inside it, then moved one by one, so that each file
// is whole at any moment. What fails leaves nothing: no file, and no directory that was made for it.
//
// What an earlier model left there under names that the new one does not use is removed last, since a loader would take it for
// the new one's:
//   weights               model*.safetensors, adapter_model*.safetensors and their indices
//   config.json           with an adapter, which has none, and its generation_config.json
//   adapter_config.json   with a whole model
//   chat_template.jinja   with a tokenizer that has no such file
// A README.md that is no generated model card stays, and the new one is left out.
#pragma once

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/model_card.hpp>

namespace rlalgo::run {

namespace detail {

[[nodiscard]] inline bool is_weights_file(const std::string& name) {
  const bool of_model = name.starts_with("model") || name.starts_with("adapter_model");
  return of_model && (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
}

// Whether a file of an earlier model would be read as one of the model whose files are `names`.
[[nodiscard]] inline bool is_stale(const std::string& name, const std::set<std::string>& names) {
  if (names.contains(name)) return false;
  const bool adapter = names.contains("adapter_config.json");
  if (name == "config.json" || name == "generation_config.json") return adapter;
  if (name == "adapter_config.json") return names.contains("config.json");
  if (name == "chat_template.jinja") return names.contains("tokenizer.json");
  return is_weights_file(name);
}

// Whether a model card may take the place of what is there.
[[nodiscard]] inline bool may_replace_card(const std::filesystem::path& there) {
  std::error_code error;
  if (!std::filesystem::exists(there, error)) return true;
  std::ifstream in(there, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  return is_generated_card(text);
}

}  // namespace detail

// `save` writes the files into the directory that it is given. Returns whether a README.md of somebody else's was kept.
inline bool publish_files(const std::filesystem::path& directory,
                          const std::function<void(const std::filesystem::path&)>& save) {
  detail::MadeDirectories made(directory);
  const std::filesystem::path building = directory / ".checkpoint-final.tmp";
  detail::remove_leftover(building);
  bool kept = false;
  try {
    detail::make_directory(building);
    save(building);
    detail::sync_tree(building);
    std::set<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(building))
      names.insert(entry.path().filename().string());
    if (!detail::may_replace_card(directory / model_card_file)) kept = names.erase(model_card_file) > 0;
    const auto is_folder = [&](const std::filesystem::path& path) {
      return std::filesystem::is_directory(path, error);
    };
    for (const std::string& name : names)
      if (is_folder(directory / name) && !is_folder(building / name))
        os::raise_file_error("cannot move the file into place", directory / name, EISDIR);
    for (const std::string& name : names) {
      if (is_folder(building / name)) std::filesystem::remove_all(directory / name, error);  // further templates
      std::filesystem::rename(building / name, directory / name, error);
      if (error) os::raise_file_error("cannot move the file into place", directory / name, error.value());
    }
    std::vector<std::filesystem::path> stale;
    for (const auto& entry : std::filesystem::directory_iterator(directory))
      if (detail::is_stale(entry.path().filename().string(), names)) stale.push_back(entry.path());
    for (const auto& path : stale) {
      std::filesystem::remove(path, error);
      if (error) os::raise_file_error("cannot remove a file of an earlier model", path, error.value());
    }
    os::AtomicFile::sync_directory(directory);
  } catch (...) {
    detail::remove_leftover(building);
    made.remove();
    throw;
  }
  detail::remove_leftover(building);
  return kept;
}

}  // namespace rlalgo::run
