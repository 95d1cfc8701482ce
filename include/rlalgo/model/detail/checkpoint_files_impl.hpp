// Definitions of checkpoint_files.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/checkpoint_names.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/joined_experts.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::model {

RLALGO_INLINE void write_checkpoint_files(const std::filesystem::path& directory, PendingTensors tensors,
                                          std::uint64_t shard_limit, std::int64_t files) {
  std::vector<std::vector<PendingTensor>> shards(1);
  std::uint64_t all = 0, filled = 0, total = 0, part = 0;
  for (const PendingTensor& entry : tensors) all += entry.bytes();
  std::map<std::string, std::size_t> shard_of;
  for (PendingTensor& entry : tensors) {
    const std::uint64_t bytes = entry.bytes();
    // The part that most of it lies in, of as many as there are files.
    const std::uint64_t own = all == 0 ? 0 : (2 * total + bytes) * static_cast<std::uint64_t>(files) / (2 * all + 1);
    if ((filled + bytes > shard_limit || own > part) && !shards.back().empty()) {
      shards.emplace_back();
      filled = 0;
    }
    part = own;
    shard_of[entry.name] = shards.size() - 1;
    shards.back().push_back(std::move(entry));
    filled += bytes;
    total += bytes;
  }
  std::vector<std::string> written;
  if (shards.size() == 1) {
    written.emplace_back("model.safetensors");
    write_pending_safetensors(directory / written.back(), std::move(shards.front()));
  } else {
    Json index;
    index["metadata"] = {{"total_size", total}};
    for (std::size_t i = 0; i < shards.size(); ++i) {
      char name[64];
      std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
      written.emplace_back(name);
      write_pending_safetensors(directory / name, std::move(shards[i]));
    }
    for (const auto& [name, shard] : shard_of) index["weight_map"][name] = written[shard];
    written.emplace_back("model.safetensors.index.json");
    os::write_file(directory / written.back(), index.dump(2) + "\n");
  }
  for (const auto& item : std::filesystem::directory_iterator(directory)) {
    const std::string name = item.path().filename().string();
    const bool weights = name == "model.safetensors" || name == "model.safetensors.index.json" ||
                         (name.starts_with("model-") && name.ends_with(".safetensors"));
    if (weights && std::find(written.begin(), written.end(), name) == written.end())
      std::filesystem::remove(item.path());
  }
}

RLALGO_INLINE CheckpointFiles::CheckpointFiles(const std::filesystem::path& directory) {
  const auto single = directory / "model.safetensors";
  const auto index = directory / "model.safetensors.index.json";
  if (os::exists(single)) {
    add(std::make_unique<SafetensorsFile>(single));
    if (os::exists(index)) {
      const Json json = detail::read_json_file(index);
      if (const auto map = json.find("weight_map"); map != json.end() && map->is_object())
        for (const auto& [name, file] : map->items())
          if (!places_.contains(name))
            core::raise("model", 14,
                        {.what = "model.safetensors stands beside an index of shards that has a tensor more",
                         .found = name + " in " + file.dump(),
                         .where = index.string(),
                         .remedy = "remove model.safetensors or the index: only the first is read"});
    }
  } else if (os::exists(index)) {
    read_index(directory, index);
  } else if (const auto adapter = directory / "adapter_model.safetensors"; os::exists(adapter)) {
    add(std::make_unique<SafetensorsFile>(adapter));
  } else {
    const bool pickled =
        os::exists(directory / "pytorch_model.bin") || os::exists(directory / "pytorch_model.bin.index.json");
    core::raise("model", 13,
                {.what = "no weights in the model directory",
                 .found = pickled ? "only pytorch_model.bin, a Python pickle" : "",
                 .expected = "model.safetensors or model.safetensors.index.json",
                 .where = directory.string(),
                 .remedy = pickled ? "convert it to safetensors" : "check base_model"});
  }
  rename(directory);
  split_experts(directory);
}

RLALGO_INLINE Tensor CheckpointFiles::read(const std::string& name) const {
  const Place& place = at(name);
  return place.part ? place.part().to(place.entry->dtype).clone(at::MemoryFormat::Contiguous)
                    : place.file->read(place.name);
}

RLALGO_INLINE Tensor CheckpointFiles::map(const std::string& name) const {
  const Place& place = at(name);
  return place.part ? place.part().to(place.entry->dtype).contiguous() : place.file->map(place.name);
}

RLALGO_INLINE Tensor CheckpointFiles::convert(const std::string& name, at::ScalarType dtype) const {
  const Place& place = at(name);
  return place.part ? place.part().to(dtype).contiguous() : place.file->convert(place.name, dtype);
}

RLALGO_INLINE void CheckpointFiles::fill(const std::string& name, const Tensor& out) const {
  const Place& place = at(name);
  if (place.part)
    out.copy_(place.part());
  else
    place.file->fill(place.name, out);
}

RLALGO_INLINE void CheckpointFiles::split_experts(const std::filesystem::path& directory) {
  const bool joined = std::any_of(places_.begin(), places_.end(), [](const auto& place) {
    return place.first.ends_with(".mlp.experts.down_proj") || place.first.ends_with(".mlp.experts.down_proj_blocks");
  });
  if (!joined || !os::exists(directory / "config.json")) return;
  const DecoderConfig config = read_hf_config(directory).decoder;
  const JoinedSource source{[this](const std::string& name) { return contains(name); },
                            [this](const std::string& name) { return map(name); }};
  std::map<std::string, Place> renamed;
  std::vector<std::string> used;
  for (ExpertPart& part : parts_of_joined(config, source, directory.string())) {
    const Place& from = at(part.sources.front());
    parts_.push_back({part.dtype, std::move(part.shape), from.entry->begin, from.entry->end});
    renamed.emplace(part.name, Place{from.file, &parts_.back(), from.name, std::move(part.make)});
    used.insert(used.end(), part.sources.begin(), part.sources.end());
  }
  for (const auto& [there, here] : renamed_routers(config))
    if (contains(there)) {
      renamed.emplace(here, at(there));
      used.push_back(there);
    }
  for (const std::string& name : used) places_.erase(name);
  places_.merge(renamed);
}

RLALGO_INLINE void CheckpointFiles::rename(const std::filesystem::path& directory) {
  std::vector<std::string> given;
  for (const auto& [name, place] : places_) given.push_back(name);
  std::map<std::string, Place> renamed;
  for (const auto& [name, stored] : model_tensor_names(given, directory.string()))
    renamed.emplace(name, places_.at(stored));
  places_ = std::move(renamed);
}

RLALGO_INLINE void CheckpointFiles::require_redundant(const std::filesystem::path& unread,
                                                      const std::string& why) const {
  const SafetensorsFile file(unread);
  for (const auto& [name, entry] : file.entries())
    if (!places_.contains(name))
      core::raise("model", 14,
                  {.what = "a file of weights is not read, and holds a tensor that the others lack",
                   .found = name,
                   .where = unread.string(),
                   .remedy = why});
}

RLALGO_INLINE void CheckpointFiles::add(std::unique_ptr<SafetensorsFile> file) {
  for (const auto& [name, entry] : file->entries()) {
    if (!places_.emplace(name, Place{file.get(), &entry, name}).second) {
      core::raise("model", 14,
                  {.what = "two shards hold the same tensor", .found = name, .where = file->path().string()});
    }
  }
  files_.push_back(std::move(file));
}

RLALGO_INLINE void CheckpointFiles::read_index(const std::filesystem::path& directory,
                                               const std::filesystem::path& path) {
  const Json index = detail::read_json_file(path);
  const auto fail = [&](const std::string& what, const std::string& found, const std::string& expected) {
    core::raise("model", 14, {.what = what, .found = found, .expected = expected, .where = path.string()});
  };
  if (!index.contains("weight_map") || !index["weight_map"].is_object() || index["weight_map"].empty()) {
    fail("the index of the shards is malformed", "no weight_map", "{\"weight_map\": {tensor: file}}");
  }
  std::map<std::string, std::string> home;
  std::vector<std::string> shards;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) fail("the index of the shards is malformed", file.dump(), "a file name for tensor " + name);
    home[name] = file.get<std::string>();
    // A name with a folder in it could point anywhere.
    if (std::filesystem::path(home[name]).filename() != home[name]) {
      fail("a shard lies outside the model directory", home[name], "a plain file name");
    }
    if (std::find(shards.begin(), shards.end(), home[name]) == shards.end()) shards.push_back(home[name]);
  }
  for (const auto& shard : shards) {
    if (!os::exists(directory / shard)) fail("a shard is missing", "", shard);
    add(std::make_unique<SafetensorsFile>(directory / shard));
  }
  for (const auto& [name, shard] : home) {
    const auto place = places_.find(name);
    if (place == places_.end() || place->second.file->path().filename() != shard) {
      fail("a tensor is not in the shard that the index names", name, shard);
    }
  }
  for (const auto& item : std::filesystem::directory_iterator(directory)) {
    const std::string name = item.path().filename().string();
    if (name.starts_with("model-") && name.ends_with(".safetensors") &&
        std::find(shards.begin(), shards.end(), name) == shards.end())
      require_redundant(item.path(), "name it in " + path.filename().string() + ", or remove it");
  }
}

}  // namespace rlalgo::model
