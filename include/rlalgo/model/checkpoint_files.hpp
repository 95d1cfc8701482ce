// The weight files of a Hugging Face directory: one model.safetensors, or shards named by model.safetensors.index.json;
// where there is neither, those of an adapter.
//
//   index: {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}
//
// Tensors have the names of this library, whatever program wrote them (checkpoint_names.hpp); where one tensor of a file is that of
// all experts, each expert's part of it is a tensor here (joined_experts.hpp; config.json says which). As in transformers
// model.safetensors is read where there are shards, too; but only if they hold no tensor that it lacks. The same goes for
// model-*.safetensors that the index does not name.
//
// Errors: [rlalgo.model.13] no usable weight file; [.14] the index is malformed or disagrees with its shards, or a file
// beside those that are read holds a tensor that they lack; and those of safetensors.hpp and checkpoint_names.hpp.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/model/checkpoint_names.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/safetensors.hpp>

namespace rlalgo::model {

// Every tensor of a directory by name, wherever it lies.
class CheckpointFiles {
 public:
  struct Place {
    const SafetensorsFile* file;
    const SafetensorsFile::Entry* entry;
    std::string name;                   // in the file
    std::function<Tensor()> part = {};  // what is read of that tensor; empty: all of it
  };

  explicit CheckpointFiles(const std::filesystem::path& directory);

  [[nodiscard]] const std::map<std::string, Place>& places() const { return places_; }
  [[nodiscard]] bool contains(const std::string& name) const { return places_.contains(name); }
  [[nodiscard]] Tensor read(const std::string& name) const;
  // In the memory of the file, unless it is a part of what the file has.
  [[nodiscard]] Tensor map(const std::string& name) const;
  // In `dtype`; in the memory of the file where that is its dtype.
  [[nodiscard]] Tensor convert(const std::string& name, at::ScalarType dtype) const;
  // Copied into `out`, of its shape and any dtype.
  void fill(const std::string& name, const Tensor& out) const;

 private:
  [[nodiscard]] const Place& at(const std::string& name) const { return places_.at(name); }

  void add(std::unique_ptr<SafetensorsFile> file);

  // A file of weights that is not read is refused if it has a tensor that those read lack.
  void require_redundant(const std::filesystem::path& unread, const std::string& why) const;

  void rename(const std::filesystem::path& directory);

  // The parts of tensors of all experts in the place of those.
  void split_experts(const std::filesystem::path& directory);

  void read_index(const std::filesystem::path& directory, const std::filesystem::path& path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Place> places_;
  std::deque<SafetensorsFile::Entry> parts_;  // of places that are a part
};

inline constexpr std::uint64_t default_shard_limit = 5'000'000'000;  // bytes of tensor data in one file

// Writes model.safetensors, or shards with an index when the tensors exceed `shard_limit` bytes, or `files` of about the same
// size are asked for (fewer where a tensor is larger than that). Tensors keep the given order when they are spread over shards. Weight files of an earlier save that the new set does not use are removed
// last. One tensor is made at a time.
void write_checkpoint_files(const std::filesystem::path& directory, PendingTensors tensors,
                            std::uint64_t shard_limit = default_shard_limit, std::int64_t files = 1);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/checkpoint_files_impl.hpp>
#endif
