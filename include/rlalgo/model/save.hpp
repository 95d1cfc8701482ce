// Writes a decoder as a Hugging Face directory that transformers and vLLM read.
//
//   config.json             the original keys, torch_dtype / dtype set to the dtype that most of the weights have
//   generation_config.json  as given, or the special token ids of config.json
//   model.safetensors       the tensors by name (shards with an index above `shard_limit` bytes), in the dtype that they
//                           have in memory, or in the one of the files that they were loaded from
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
#include <rlalgo/model/lent_weights.hpp>

namespace rlalgo::model {

// In which dtype tensors are saved: as they are computed with, to the bit; or as in the files that they were loaded from, rounded
// where that is narrower (never widened: there would be nothing in the bits that are added).
enum class SavedDtype { computed, stored };

struct SaveOptions {
  std::optional<Json> generation_config;  // the base model's, or the trainer's; default: token ids of config.json
  std::uint64_t shard_limit = default_shard_limit;
  std::int64_t files = 1;  // that the weights are spread over, more where that is not enough
  SavedDtype dtype = SavedDtype::computed;
};

namespace detail {

[[nodiscard]] std::string dtype_name(at::ScalarType type);

// Rounded to `type` when it is made.
[[nodiscard]] PendingTensor rounded(PendingTensor tensor, at::ScalarType type);

// The dtype of most elements.
[[nodiscard]] at::ScalarType common_dtype(const PendingTensors& tensors);

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
