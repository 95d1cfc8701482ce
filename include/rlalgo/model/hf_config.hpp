// Reads a Hugging Face config.json (spellings of transformers 4 and 5) and generation_config.json.
//
//   v4: torch_dtype, rope_theta + rope_scaling {type | rope_type, …}
//   v5: dtype,       rope_parameters {rope_theta, rope_type, …}
//
// The original JSON is kept, so that a model is saved with the keys its readers know. What this library would compute
// wrongly is refused: other architectures, other activations, other RoPE types.
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
  DecoderConfig decoder;
  Json json;                                // config.json as it was
  std::vector<std::int64_t> eos_token_ids;  // of config.json
  std::optional<std::int64_t> bos_token_id, pad_token_id;
  std::map<std::string, c10::ScalarType> stored;  // of each tensor in the files that were loaded; empty: of none
};

// What generation_config.json says. Fields that it leaves out are empty, never a library default.
struct GenerationConfig {
  std::vector<std::int64_t> eos_token_ids;  // stop at any
  std::optional<std::int64_t> bos_token_id, pad_token_id, top_k, max_new_tokens;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<bool> do_sample;
  Json json;
};

namespace detail {

inline constexpr std::uint64_t largest_json_file = std::uint64_t{64} << 20U;  // bytes

// The object in a JSON file. [rlalgo.model.8]
[[nodiscard]] Json read_json_file(const std::filesystem::path& path);

// Typed access to the fields of one JSON object; null counts as absent, as in transformers.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  // Written, as null.
  [[nodiscard]] bool has_null(std::string_view key) const;
  // An integer or a list of them.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;
  // A required count.
  [[nodiscard]] std::int64_t positive(std::string_view key, std::optional<std::int64_t> fallback = std::nullopt) const;
  [[noreturn]] void wrong(std::string_view key, const Json& value, const std::string& expected) const;
  [[noreturn]] void unsupported(std::string_view key, const Json& value, const std::string& expected) const;
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const Json& object() const { return object_; }

 private:
  const Json& object_;
  std::string where_;
};

[[nodiscard]] RopeConfig parse_rope(const JsonFields& fields, std::int64_t max_positions, double theta);

// A rotation for each kind of layers, as families with several kinds write them.
struct RotationOfKind {
  std::string_view kind;       // its name in rope_parameters
  std::string_view theta_key;  // what an older file calls its theta
  double theta;
};
// rope_parameters has an object for each kind; older files have rope_scaling for the first one, and the thetas.
[[nodiscard]] std::vector<RopeConfig> parse_ropes_of_kinds(const JsonFields& fields, std::int64_t max_positions,
                                                           const std::vector<RotationOfKind>& kinds);

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
