// Reads a Hugging Face config.json (spellings of transformers 4 and 5) and generation_config.json.
//
//   v4: torch_dtype, rope_theta + rope_scaling {type | rope_type, …}
//   v5: dtype,       rope_parameters {rope_theta, rope_type, …}
//
// The original JSON is kept, so that a model is saved with the keys its readers know. What this library would compute
// wrongly is refused: other architectures, other activations, other RoPE types, a sliding window that is on.
//
// Errors: [rlalgo.model.7] directory missing · 8 config.json missing or not JSON · 9 a field missing or of the wrong
// type or value · 10 unsupported architecture · 11 unsupported feature · 12 unknown RoPE type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/decoder_config.hpp>

namespace rlalgo::model {

using Json = nlohmann::ordered_json;

struct HfConfig {
  DecoderConfig decoder;
  Json json;                                // config.json as it was
  std::vector<std::int64_t> eos_token_ids;  // of config.json
  std::optional<std::int64_t> bos_token_id, pad_token_id;
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

[[nodiscard]] inline Json read_json_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    core::raise("model", 8,
                {.what = path.filename().string() + " is missing or unreadable",
                 .where = path.string(),
                 .remedy = "base_model must name a Hugging Face model directory"});
  }
  try {
    Json json = Json::parse(stream);
    if (json.is_object()) return json;
    core::raise("model", 8,
                {.what = path.filename().string() + " is not a JSON object",
                 .found = json.type_name(),
                 .where = path.string()});
  } catch (const nlohmann::json::parse_error& error) {
    core::raise(
        "model", 8,
        {.what = path.filename().string() + " is not valid JSON", .found = error.what(), .where = path.string()});
  }
}

// Typed access to the fields of one JSON object; null counts as absent, as in transformers.
class JsonFields {
 public:
  JsonFields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  [[nodiscard]] const Json* find(std::string_view key) const {
    const auto it = object_.find(std::string(key));
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer()) wrong(key, *value, "integer");
    return value->get<std::int64_t>();
  }
  [[nodiscard]] std::optional<double> number(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number()) wrong(key, *value, "number");
    return value->get<double>();
  }
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_boolean()) wrong(key, *value, "true or false");
    return value->get<bool>();
  }
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) wrong(key, *value, "string");
    return value->get<std::string>();
  }
  // An integer or a list of them.
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr) return {};
    if (value->is_number_integer()) return {value->get<std::int64_t>()};
    const auto is_integer = [](const Json& v) { return v.is_number_integer(); };
    if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_integer))
      wrong(key, *value, "integer or list of integers");
    return value->get<std::vector<std::int64_t>>();
  }
  // A required count.
  [[nodiscard]] std::int64_t positive(std::string_view key, std::optional<std::int64_t> fallback = std::nullopt) const {
    const auto value = integer(key);
    if (!value && !fallback) {
      core::raise("model", 9,
                  {.what = "a required field is missing", .found = "no " + std::string(key), .where = where_});
    }
    const std::int64_t n = value ? *value : *fallback;
    if (n < 1 || n > std::numeric_limits<std::int32_t>::max()) wrong(key, Json(n), "a positive count");
    return n;
  }
  [[noreturn]] void wrong(std::string_view key, const Json& value, const std::string& expected) const {
    core::raise("model", 9,
                {.what = "field " + std::string(key) + " has a wrong value",
                 .found = value.dump(),
                 .expected = expected,
                 .where = where_});
  }
  [[noreturn]] void unsupported(std::string_view key, const Json& value, const std::string& expected) const {
    core::raise("model", 11,
                {.what = "the model uses a feature that is not supported: " + std::string(key),
                 .found = value.dump(),
                 .expected = expected,
                 .where = where_});
  }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  const Json& object_;
  std::string where_;
};

[[nodiscard]] inline RopeConfig parse_rope(const JsonFields& fields, std::int64_t max_positions) {
  RopeConfig rope;
  rope.theta = fields.number("rope_theta").value_or(10000.0);
  const Json* parameters = fields.find("rope_parameters");
  const Json* scaling = parameters != nullptr ? parameters : fields.find("rope_scaling");
  if (scaling == nullptr) return rope;
  const std::string key = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  if (!scaling->is_object()) fields.wrong(key, *scaling, "object");
  const JsonFields inner(*scaling, fields.where() + ", " + key);
  rope.theta = inner.number("rope_theta").value_or(rope.theta);
  if (!(rope.theta > 0)) inner.wrong("rope_theta", Json(rope.theta), "a positive number");
  const std::string type = inner.text("rope_type").value_or(inner.text("type").value_or("default"));
  if (const auto partial = inner.number("partial_rotary_factor"); partial && *partial != 1.0) {
    inner.unsupported("partial_rotary_factor", Json(*partial), "1.0");
  }
  if (type == "default") return rope;
  if (type != "llama3") {
    core::raise("model", 12,
                {.what = "unknown RoPE type", .found = type, .expected = "default or llama3", .where = inner.where()});
  }
  rope.kind = RopeConfig::Kind::llama3;
  const auto required = [&](std::string_view name) {
    const auto value = inner.number(name);
    if (!value)
      core::raise("model", 9,
                  {.what = "a required field is missing", .found = "no " + std::string(name), .where = inner.where()});
    if (!(*value > 0)) inner.wrong(name, Json(*value), "a positive number");
    return *value;
  };
  rope.factor = required("factor");
  rope.low_freq_factor = required("low_freq_factor");
  rope.high_freq_factor = required("high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    inner.wrong("high_freq_factor", Json(rope.high_freq_factor), "more than low_freq_factor");
  }
  rope.original_max_position_embeddings =
      inner.number("original_max_position_embeddings")
          .value_or(fields.number("original_max_position_embeddings").value_or(static_cast<double>(max_positions)));
  return rope;
}

}  // namespace detail

// `where` names the file in errors.
[[nodiscard]] inline HfConfig parse_hf_config(Json json, const std::string& where) {
  const detail::JsonFields fields(json, where);
  static constexpr std::pair<std::string_view, std::string_view> known[] = {
      {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};
  const std::string type = fields.text("model_type").value_or("");
  std::string architecture;
  if (const Json* list = fields.find("architectures"); list != nullptr) {
    if (!list->is_array() || list->empty() || !list->front().is_string())
      fields.wrong("architectures", *list, "list of names");
    architecture = list->front().get<std::string>();
  }
  const auto match = std::find_if(std::begin(known), std::end(known), [&](const auto& entry) {
    return (type.empty() || type == entry.first) && (architecture.empty() || architecture == entry.second);
  });
  if (match == std::end(known) || (type.empty() && architecture.empty())) {
    core::raise("model", 10,
                {.what = "unsupported model architecture",
                 .found = "model_type \"" + type + "\", architecture \"" + architecture + "\"",
                 .expected = "llama (LlamaForCausalLM), qwen2 (Qwen2ForCausalLM) or qwen3 (Qwen3ForCausalLM)",
                 .where = where});
  }

  HfConfig out;
  DecoderConfig& c = out.decoder;
  c.model_type = match->first;
  c.vocab_size = fields.positive("vocab_size");
  c.hidden_size = fields.positive("hidden_size");
  c.intermediate_size = fields.positive("intermediate_size");
  c.layers = fields.positive("num_hidden_layers");
  c.heads = fields.positive("num_attention_heads");
  // Qwen3's class default for head_dim is 128; the other two derive it.
  c.kv_heads = fields.positive("num_key_value_heads", c.heads);
  c.head_dim = fields.positive("head_dim", c.model_type == "qwen3" ? 128 : c.hidden_size / c.heads);
  c.max_position_embeddings = fields.positive("max_position_embeddings", c.model_type == "llama" ? 2048 : 32768);
  if (c.heads % c.kv_heads != 0)
    fields.wrong("num_key_value_heads", Json(c.kv_heads), "a divisor of num_attention_heads");
  if (c.head_dim % 2 != 0) fields.wrong("head_dim", Json(c.head_dim), "an even number");
  c.rms_norm_eps = fields.number("rms_norm_eps").value_or(1e-6);
  c.tied_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  const bool attention_bias = fields.boolean("attention_bias").value_or(false);
  c.qkv_bias = c.model_type == "qwen2" || attention_bias;
  c.output_bias = c.model_type != "qwen2" && attention_bias;
  c.mlp_bias = c.model_type == "llama" && fields.boolean("mlp_bias").value_or(false);
  c.qk_norm = c.model_type == "qwen3";
  c.rope = detail::parse_rope(fields, c.max_position_embeddings);

  if (const auto activation = fields.text("hidden_act");
      activation && *activation != "silu" && *activation != "swish") {
    fields.unsupported("hidden_act", Json(*activation), "\"silu\"");
  }
  if (const auto partial = fields.number("partial_rotary_factor"); partial && *partial != 1.0) {
    fields.unsupported("partial_rotary_factor", Json(*partial), "1.0");
  }
  if (const Json* quantized = fields.find("quantization_config"); quantized != nullptr) {
    fields.unsupported("quantization_config", *quantized, "an unquantized checkpoint in bf16 or f32");
  }
  // A window is on when a layer's type says so, or, without types, when use_sliding_window does and reaches a layer.
  if (const Json* types = fields.find("layer_types"); types != nullptr && types->is_array()) {
    for (const auto& layer : *types) {
      if (layer != "full_attention") fields.unsupported("layer_types", layer, "\"full_attention\" in every layer");
    }
  } else if (c.model_type != "llama" && fields.boolean("use_sliding_window").value_or(false) &&
             fields.integer("sliding_window").value_or(4096) < c.max_position_embeddings &&
             fields.integer("max_window_layers").value_or(28) < c.layers) {
    fields.unsupported("use_sliding_window", Json(true), "false");
  }
  out.eos_token_ids = fields.integers("eos_token_id");
  out.bos_token_id = fields.integer("bos_token_id");
  out.pad_token_id = fields.integer("pad_token_id");
  out.json = std::move(json);
  return out;
}

[[nodiscard]] inline HfConfig read_hf_config(const std::filesystem::path& directory) {
  if (!std::filesystem::is_directory(directory)) {
    core::raise("model", 7,
                {.what = "the model directory does not exist",
                 .found = directory.string(),
                 .expected = "a directory with config.json and model.safetensors",
                 .remedy = "check base_model"});
  }
  const auto path = directory / "config.json";
  return parse_hf_config(detail::read_json_file(path), path.string());
}

// Empty when the directory has no generation_config.json.
[[nodiscard]] inline std::optional<GenerationConfig> read_generation_config(const std::filesystem::path& directory) {
  const auto path = directory / "generation_config.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  GenerationConfig out;
  out.json = detail::read_json_file(path);
  const detail::JsonFields fields(out.json, path.string());
  out.eos_token_ids = fields.integers("eos_token_id");
  out.bos_token_id = fields.integer("bos_token_id");
  out.pad_token_id = fields.integer("pad_token_id");
  out.top_k = fields.integer("top_k");
  out.max_new_tokens = fields.integer("max_new_tokens");
  out.temperature = fields.number("temperature");
  out.top_p = fields.number("top_p");
  out.min_p = fields.number("min_p");
  out.repetition_penalty = fields.number("repetition_penalty");
  out.do_sample = fields.boolean("do_sample");
  return out;
}

// End-of-sequence ids: those of generation_config.json when it names any, else those of config.json.
[[nodiscard]] inline std::vector<std::int64_t> eos_token_ids(const std::filesystem::path& directory) {
  if (auto generation = read_generation_config(directory); generation && !generation->eos_token_ids.empty()) {
    return generation->eos_token_ids;
  }
  return read_hf_config(directory).eos_token_ids;
}

}  // namespace rlalgo::model
