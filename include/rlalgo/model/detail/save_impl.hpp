// Definitions of save.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/joined_experts.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/os/atomic_file.hpp>

namespace rlalgo::model {

namespace detail {

RLALGO_INLINE std::string dtype_name(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Float:
      return "float32";
    case at::ScalarType::Double:
      return "float64";
    case at::ScalarType::BFloat16:
      return "bfloat16";
    case at::ScalarType::Half:
      return "float16";
    default:
      return c10::toString(type);
  }
}

RLALGO_INLINE PendingTensor rounded(PendingTensor tensor, at::ScalarType type) {
  tensor.dtype = type;
  tensor.make = [make = std::move(tensor.make), type] { return make().to(type); };
  return tensor;
}

RLALGO_INLINE at::ScalarType common_dtype(const PendingTensors& tensors) {
  std::map<at::ScalarType, std::uint64_t> elements;
  for (const PendingTensor& one : tensors) elements[one.dtype] += one.bytes() / c10::elementSize(one.dtype);
  return std::max_element(elements.begin(), elements.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

RLALGO_INLINE Json config_with_dtype(Json json, at::ScalarType type) {
  if (json.contains("dtype")) json["dtype"] = dtype_name(type);
  if (json.contains("torch_dtype") || !json.contains("dtype")) json["torch_dtype"] = dtype_name(type);
  return json;
}

RLALGO_INLINE Json default_generation_config(const Json& config) {
  Json out = Json::object();
  out["_from_model_config"] = true;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config.contains(key) && !config[key].is_null()) out[key] = config[key];
  }
  if (config.contains("transformers_version")) out["transformers_version"] = config["transformers_version"];
  return out;
}

}  // namespace detail

RLALGO_INLINE void save_decoder(const Decoder& decoder, const std::filesystem::path& directory,
                                const SaveOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) os::raise_file_error("cannot create the directory", directory, error.value());
  PendingTensors tensors;
  const auto& stored = decoder.hf_config().stored;
  for (const auto& [name, value] : decoder.named_tensors()) {
    tensors.push_back(pending(decoder, name, value));
    const auto found = stored.find(name);
    if (options.dtype == SavedDtype::stored && found != stored.end() &&
        c10::elementSize(found->second) < c10::elementSize(tensors.back().dtype))
      tensors.back() = detail::rounded(std::move(tensors.back()), found->second);
  }
  const at::ScalarType type = detail::common_dtype(tensors);
  write_checkpoint_files(directory, with_joined_experts(decoder.config(), std::move(tensors)), options.shard_limit,
                         options.files);
  const Json& config = decoder.hf_config().json;
  const Json generation =
      options.generation_config ? *options.generation_config : detail::default_generation_config(config);
  os::write_file(directory / "generation_config.json", generation.dump(2) + "\n");
  os::write_file(directory / "config.json", detail::config_with_dtype(config, type).dump(2) + "\n");
}

}  // namespace rlalgo::model
