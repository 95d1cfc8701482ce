// The model's files into output_dir itself: built aside, then moved one by one, so that each file is whole at any
// moment.
//
// Weights of an earlier run under other names (sharded then, single now, or an adapter) are removed last: a loader
// would take them for ours.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/run/detail/durable.hpp>

namespace rlalgo::run::detail {

[[nodiscard]] inline bool is_weights_file(const std::string& name) {
  const bool of_model = name.starts_with("model") || name.starts_with("adapter_model");
  return of_model && (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
}

inline void publish_files(const std::filesystem::path& output_dir,
                          const std::function<void(const std::filesystem::path&)>& save) {
  const std::filesystem::path building = output_dir / ".checkpoint-final.tmp";
  remove_leftover(building);
  try {
    make_directory(building);
    save(building);
    sync_tree(building);
    std::set<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(building)) {
      const std::string name = entry.path().filename().string();
      names.insert(name);
      std::filesystem::rename(entry.path(), output_dir / name, error);
      if (error) core::raise_file_error("cannot move the file into place", output_dir / name, error.value());
    }
    std::vector<std::filesystem::path> stale;
    for (const auto& entry : std::filesystem::directory_iterator(output_dir)) {
      const std::string name = entry.path().filename().string();
      if (is_weights_file(name) && !names.contains(name)) stale.push_back(entry.path());
    }
    for (const auto& path : stale) {
      std::filesystem::remove(path, error);
      if (error) core::raise_file_error("cannot remove the weights of an earlier run", path, error.value());
    }
    core::AtomicFile::sync_directory(output_dir);
  } catch (...) {
    remove_leftover(building);
    throw;
  }
  remove_leftover(building);
}

}  // namespace rlalgo::run::detail
