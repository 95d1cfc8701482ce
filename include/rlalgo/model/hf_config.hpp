// Reads a Hugging Face config.json (spellings of transformers 4 and 5) and generation_config.json.
//
//   v4: torch_dtype, rope_theta + rope_scaling {type | rope_type, …}
//   v5: dtype,       rope_parameters {rope_theta, rope_type, …}
//
// Of a checkpoint that sees images (qwen3_5, qwen3_5_moe) the text model is read, as transformers' AutoModelForCausalLM does: text_config
// is its config.json, and what is saved is a model of text.
//
// The original JSON is kept, so that a model is saved with the keys its readers know. What this library would compute
// wrongly is refused: other architectures, other activations, other RoPE types, weights quantised by others than bitsandbytes.
//
// Errors: [rlalgo.model.7] directory missing; [.8] config.json missing or not JSON; [.9] a field missing or of the
// wrong type or value; [.10] unsupported architecture; [.11] unsupported feature; [.12] unknown RoPE type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>
#include <nlohmann/json.hpp>

#include <rlalgo/model/decoder_config.hpp>

namespace rlalgo::model {

using Json = nlohmann::ordered_json;

struct HfConfig {
  DecoderConfig decoder{};
  Json json{};  // config.json as it was; of a model that sees images, what it says of the text model
  std::vector<std::int64_t> eos_token_ids{};  // of config.json
  std::optional<std::int64_t> bos_token_id{}, pad_token_id{};
  std::map<std::string, c10::ScalarType> stored{};  // of each tensor in the files that were loaded; empty: of none
  // quantization_config is bitsandbytes': what it says products are computed in.
  std::optional<c10::ScalarType> quantised_compute = {};
};

// What generation_config.json says. Fields that it leaves out are empty, never a library default.
struct GenerationConfig {
  std::vector<std::int64_t> eos_token_ids{};  // stop at any
  std::optional<std::int64_t> bos_token_id{}, pad_token_id{}, top_k{}, max_new_tokens{};
  std::optional<double> temperature{}, top_p{}, min_p{}, repetition_penalty{};
  std::optional<bool> do_sample{};
  Json json{};
};

namespace detail {

inline constexpr std::uint64_t largest_json_file = std::uint64_t{64} << 20U;  // bytes

// The object in a JSON file. [rlalgo.model.8]
[[nodiscard]] Json read_json_file(const std::filesystem::path& path);

}  // namespace detail

// `where` names the file in errors.
[[nodiscard]] HfConfig parse_hf_config(Json json, const std::string& where);

[[nodiscard]] HfConfig read_hf_config(const std::filesystem::path& directory);

// Empty when the directory has no generation_config.json.
[[nodiscard]] std::optional<GenerationConfig> read_generation_config(const std::filesystem::path& directory);

// End-of-sequence ids: those of generation_config.json when it names any, else those of config.json.
[[nodiscard]] std::vector<std::int64_t> eos_token_ids(const std::filesystem::path& directory);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/hf_config_impl.hpp>
#endif
