// Definitions of hf_config.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/regular_file.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/detail/families.hpp>
#include <rlalgo/model/hf_config.hpp>

namespace rlalgo::model {

namespace detail {

RLALGO_INLINE Json read_json_file(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const core::FileText file = core::read_regular_file(path, largest_json_file);
  if (!file.problem.empty())
    core::raise("model", 8,
                {.what = name + " is missing or unreadable",
                 .found = file.problem,
                 .where = path.string(),
                 .remedy = "base_model must name a Hugging Face model directory"});
  auto [json, problem] = core::read_json<Json>(file.text);
  if (!problem.text.empty())
    core::raise("model", 8, {.what = name + " is not valid JSON", .found = problem.text, .where = path.string()});
  if (!json.is_object())
    core::raise("model", 8,
                {.what = name + " is not a JSON object", .found = json.type_name(), .where = path.string()});
  return std::move(json);
}

// The rotation that an object of config.json describes.
inline RopeConfig read_rotation(const JsonFields& fields, const JsonFields& inner, std::int64_t max_positions,
                                double theta) {
  RopeConfig rope;
  rope.theta = theta;
  rope.theta = inner.number("rope_theta").value_or(rope.theta);
  if (!(rope.theta > 0)) inner.wrong("rope_theta", Json(rope.theta), "a positive number");
  const std::string type = inner.text("rope_type").value_or(inner.text("type").value_or("default"));
  if (const auto partial = inner.number("partial_rotary_factor"); partial && *partial != 1.0) {
    inner.unsupported("partial_rotary_factor", Json(*partial), "1.0");
  }
  if (type == "default") return rope;
  static constexpr std::pair<std::string_view, RopeConfig::Kind> kinds[] = {{"linear", RopeConfig::Kind::linear},
                                                                            {"dynamic", RopeConfig::Kind::dynamic},
                                                                            {"llama3", RopeConfig::Kind::llama3},
                                                                            {"yarn", RopeConfig::Kind::yarn}};
  const auto kind = std::find_if(std::begin(kinds), std::end(kinds), [&](const auto& k) { return k.first == type; });
  if (kind == std::end(kinds)) {
    core::raise("model", 12,
                {.what = "unknown RoPE type",
                 .found = type,
                 .expected = "default, linear, dynamic, llama3 or yarn",
                 .where = inner.where()});
  }
  rope.kind = kind->second;
  const auto positive = [&](std::string_view name, std::optional<double> fallback = std::nullopt) {
    const auto value = inner.number(name);
    if (!value && !fallback)
      core::raise("model", 9,
                  {.what = "a required field is missing", .found = "no " + std::string(name), .where = inner.where()});
    const double number = value ? *value : *fallback;
    if (!(number > 0) || !std::isfinite(number)) inner.wrong(name, Json(number), "a positive number");
    return number;
  };
  const double most = static_cast<double>(max_positions);
  rope.original_max_position_embeddings =
      rope.kind == RopeConfig::Kind::dynamic
          ? most
          : positive("original_max_position_embeddings",
                     fields.number("original_max_position_embeddings").value_or(most));
  rope.factor = rope.kind == RopeConfig::Kind::yarn ? positive("factor", most / rope.original_max_position_embeddings)
                                                    : positive("factor");
  if (rope.kind == RopeConfig::Kind::llama3) {
    rope.low_freq_factor = positive("low_freq_factor");
    rope.high_freq_factor = positive("high_freq_factor");
    if (rope.high_freq_factor <= rope.low_freq_factor)
      inner.wrong("high_freq_factor", Json(rope.high_freq_factor), "more than low_freq_factor");
  } else if (rope.kind == RopeConfig::Kind::yarn) {
    if (rope.theta <= 1) inner.wrong("rope_theta", Json(rope.theta), "more than 1");
    rope.beta_fast = positive("beta_fast", 32.0);
    rope.beta_slow = positive("beta_slow", 1.0);
    rope.truncate = inner.boolean("truncate").value_or(true);
    const auto scale = [&](double m) { return rope.factor <= 1 ? 1.0 : 0.1 * m * std::log(rope.factor) + 1.0; };
    const double mscale = inner.number("mscale").value_or(0), all = inner.number("mscale_all_dim").value_or(0);
    rope.attention_factor =
        positive("attention_factor", mscale != 0 && all != 0 ? scale(mscale) / scale(all) : scale(1));
  }
  return rope;
}

RLALGO_INLINE RopeConfig parse_rope(const JsonFields& fields, std::int64_t max_positions, double theta) {
  theta = fields.number("rope_theta").value_or(theta);
  const Json* parameters = fields.find("rope_parameters");
  const Json* scaling = parameters != nullptr ? parameters : fields.find("rope_scaling");
  const std::string key = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  static const Json nothing = Json::object();
  if (scaling == nullptr) scaling = &nothing;
  if (!scaling->is_object()) fields.wrong(key, *scaling, "object");
  const JsonFields inner(*scaling, fields.where() + ", " + key);
  for (const auto& [name, value] : scaling->items())
    if (value.is_object()) inner.unsupported(name, value, "one rotation for all layers, not one for each kind of them");
  return read_rotation(fields, inner, max_positions, theta);
}

RLALGO_INLINE std::vector<RopeConfig> parse_ropes_of_kinds(const JsonFields& fields, std::int64_t max_positions,
                                                           const std::vector<RotationOfKind>& kinds) {
  const Json* parameters = fields.find("rope_parameters");
  const Json* scaling = fields.find("rope_scaling");
  const std::string where = fields.where() + ", rope_parameters";
  if (parameters != nullptr && !parameters->is_object()) fields.wrong("rope_parameters", *parameters, "object");
  if (scaling != nullptr && !scaling->is_object()) fields.wrong("rope_scaling", *scaling, "object");
  if (parameters != nullptr)
    for (const auto& [name, value] : parameters->items())
      if (std::none_of(kinds.begin(), kinds.end(), [&](const RotationOfKind& kind) { return kind.kind == name; }))
        JsonFields(*parameters, where).unsupported(name, value, "one rotation for each kind of layers");
  std::vector<RopeConfig> out;
  for (const RotationOfKind& kind : kinds) {
    Json own = Json::object();
    if (parameters != nullptr) {
      const JsonFields inner(*parameters, where);
      if (const Json* given = inner.find(kind.kind); given != nullptr) {
        if (!given->is_object()) inner.wrong(kind.kind, *given, "object");
        own = *given;
      }
    }
    if (scaling != nullptr && out.empty()) own.update(*scaling);
    const JsonFields inner(own, where + ", " + std::string(kind.kind));
    if (!own.contains("rope_type") && own.contains("type"))
      inner.unsupported("type", own.at("type"), "rope_type, which transformers reads in its place");
    out.push_back(read_rotation(fields, inner, max_positions, fields.number(kind.theta_key).value_or(kind.theta)));
  }
  return out;
}

RLALGO_INLINE const Json* JsonFields::find(std::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

RLALGO_INLINE std::optional<std::int64_t> JsonFields::integer(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) wrong(key, *value, "integer");
  return value->get<std::int64_t>();
}

RLALGO_INLINE std::optional<double> JsonFields::number(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong(key, *value, "number");
  return value->get<double>();
}

RLALGO_INLINE std::optional<bool> JsonFields::boolean(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) wrong(key, *value, "true or false");
  return value->get<bool>();
}

RLALGO_INLINE std::optional<std::string> JsonFields::text(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong(key, *value, "string");
  return value->get<std::string>();
}

RLALGO_INLINE bool JsonFields::has_null(std::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it != object_.end() && it->is_null();
}

RLALGO_INLINE std::vector<std::int64_t> JsonFields::integers(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return {};
  if (value->is_number_integer()) return {value->get<std::int64_t>()};
  const auto is_integer = [](const Json& v) { return v.is_number_integer(); };
  if (!value->is_array() || !std::all_of(value->begin(), value->end(), is_integer))
    wrong(key, *value, "integer or list of integers");
  return value->get<std::vector<std::int64_t>>();
}

RLALGO_INLINE std::int64_t JsonFields::positive(std::string_view key, std::optional<std::int64_t> fallback) const {
  const auto value = integer(key);
  if (!value && !fallback) {
    core::raise("model", 9,
                {.what = "a required field is missing", .found = "no " + std::string(key), .where = where_});
  }
  const std::int64_t n = value ? *value : *fallback;
  if (n < 1 || n > std::numeric_limits<std::int32_t>::max()) wrong(key, Json(n), "a positive count");
  return n;
}

RLALGO_INLINE void JsonFields::wrong(std::string_view key, const Json& value, const std::string& expected) const {
  core::raise("model", 9,
              {.what = "field " + std::string(key) + " has a wrong value",
               .found = value.dump(),
               .expected = expected,
               .where = where_});
}

RLALGO_INLINE void JsonFields::unsupported(std::string_view key, const Json& value, const std::string& expected) const {
  core::raise("model", 11,
              {.what = "the model uses a feature that is not supported: " + std::string(key),
               .found = value.dump(),
               .expected = expected,
               .where = where_});
}

}  // namespace detail

RLALGO_INLINE HfConfig parse_hf_config(Json json, const std::string& where) {
  const detail::JsonFields fields(json, where);
  const std::string type = fields.text("model_type").value_or("");
  std::string architecture;
  if (const Json* list = fields.find("architectures"); list != nullptr) {
    if (!list->is_array() || list->empty() || !list->front().is_string())
      fields.wrong("architectures", *list, "list of names");
    architecture = list->front().get<std::string>();
  }
  const auto* const family =
      std::find_if(std::begin(detail::families), std::end(detail::families), [&](const detail::Family& one) {
        return (type.empty() || type == one.model_type) && (architecture.empty() || architecture == one.architecture);
      });
  if (family == std::end(detail::families) || (type.empty() && architecture.empty())) {
    std::string known;
    for (const detail::Family& one : detail::families)
      known += (known.empty() ? "" : ", ") + std::string(one.model_type) + " (" + std::string(one.who) + ")";
    core::raise("model", 10,
                {.what = "unsupported model architecture",
                 .found = "model_type \"" + type + "\", architecture \"" + architecture + "\"",
                 .expected = known + ", each as …ForCausalLM",
                 .where = where});
  }
  HfConfig out;
  DecoderConfig& c = out.decoder;
  c.model_type = family->model_type;
  family->describe(fields, c);
  for (const RopeConfig& rope : c.ropes)
    if (rope.kind == RopeConfig::Kind::dynamic && c.head_dim < 4)
      fields.wrong("head_dim", Json(c.head_dim), "4 or more with dynamic RoPE scaling");
  if (const auto partial = fields.number("partial_rotary_factor"); partial && *partial != 1.0) {
    fields.unsupported("partial_rotary_factor", Json(*partial), "1.0");
  }
  // What transformers reads beyond the above, and what changes with it.
  if (const auto dropout = fields.number("attention_dropout"); dropout && *dropout != 0)
    fields.unsupported("attention_dropout", Json(*dropout), "0, as attention has no dropout here");
  if (const auto causal = fields.boolean("is_causal"); causal && !*causal)
    fields.unsupported("is_causal", Json(false), "true: a token sees what is before it");
  if (const Json* layers = fields.find("per_layer_config"); layers != nullptr && !layers->empty())
    fields.unsupported("per_layer_config", *layers, "one configuration for all layers");
  if (const Json* quantized = fields.find("quantization_config"); quantized != nullptr) {
    fields.unsupported("quantization_config", *quantized, "an unquantized checkpoint in bf16 or f32");
  }
  out.eos_token_ids = fields.integers("eos_token_id");
  out.bos_token_id = fields.integer("bos_token_id");
  out.pad_token_id = fields.integer("pad_token_id");
  out.json = std::move(json);
  return out;
}

RLALGO_INLINE HfConfig read_hf_config(const std::filesystem::path& directory) {
  if (!core::is_directory(directory)) {
    core::raise("model", 7,
                {.what = "the model directory does not exist",
                 .found = directory.string(),
                 .expected = "a directory with config.json and model.safetensors",
                 .remedy = "check base_model"});
  }
  const auto path = directory / "config.json";
  return parse_hf_config(detail::read_json_file(path), path.string());
}

RLALGO_INLINE std::optional<GenerationConfig> read_generation_config(const std::filesystem::path& directory) {
  const auto path = directory / "generation_config.json";
  if (!core::exists(path)) return std::nullopt;
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

RLALGO_INLINE std::vector<std::int64_t> eos_token_ids(const std::filesystem::path& directory) {
  if (auto generation = read_generation_config(directory); generation && !generation->eos_token_ids.empty()) {
    return generation->eos_token_ids;
  }
  return read_hf_config(directory).eos_token_ids;
}

}  // namespace rlalgo::model
