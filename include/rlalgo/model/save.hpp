// Writes a decoder as a Hugging Face directory that transformers and vLLM read.
//
//   config.json             the original keys, torch_dtype / dtype set to the dtype of the file
//   generation_config.json  as given, or the special token ids of config.json
//   model.safetensors       the tensors in their own dtype and names (shards with an index above `shard_limit` bytes)
//
// Each file appears whole or not at all; config.json is written last, so that a directory with one is complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/hf_config.hpp>

namespace rlalgo::model {

struct SaveOptions {
  std::optional<Json> generation_config;  // the base model's, or the trainer's; default: token ids of config.json
  std::uint64_t shard_limit = default_shard_limit;
  std::int64_t files = 1;  // that the weights are spread over, more where that is not enough
};

namespace detail {

[[nodiscard]] std::string dtype_name(at::ScalarType type);

// config.json of a file in this dtype. Whichever spelling the file has is kept; a config without one gets the older,
// which every reader knows.
[[nodiscard]] Json config_with_dtype(Json json, at::ScalarType type);

[[nodiscard]] Json default_generation_config(const Json& config);

}  // namespace detail

void save_decoder(const Decoder& decoder, const std::filesystem::path& directory, const SaveOptions& options = {});

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/save_impl.hpp>
#endif
