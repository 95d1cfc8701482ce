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
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/detail/config_fields.hpp>
#include <rlalgo/model/detail/families.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::model {

namespace detail {

RLALGO_INLINE Json read_json_file(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const os::FileText file = os::read_regular_file(path, largest_json_file);
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

// The config.json of the text model of one that sees images; any other as it is.
inline Json text_config_of(Json json) {
  const std::string type = json.value("model_type", Json()).is_string() ? json["model_type"].get<std::string>() : "";
  const auto text = json.find("text_config");
  if ((type != "qwen3_5" && type != "qwen3_5_moe") || text == json.end() || !text->is_object()) return json;
  Json out = *text;
  out["model_type"] = type + "_text";
  out["architectures"] = Json::array({type == "qwen3_5" ? "Qwen3_5ForCausalLM" : "Qwen3_5MoeForCausalLM"});
  for (const char* key : {"dtype", "torch_dtype", "transformers_version", "quantization_config"})
    if (json.contains(key) && !out.contains(key)) out[key] = json[key];
  // Files without an output embedding have one that is tied, whichever of the two says so.
  const auto tied = [](const Json& of) {
    const auto at = of.find("tie_word_embeddings");
    return at != of.end() && at->is_boolean() && at->get<bool>();
  };
  if (tied(json)) out["tie_word_embeddings"] = true;
  return out;
}

// What products of weights that bitsandbytes quantised are computed in. transformers takes a
// section without a method for bitsandbytes' where it has load_in_4bit or load_in_8bit. float16 is computed in float32.
RLALGO_INLINE c10::ScalarType quantised_compute(const Json& section, const std::string& where) {
  const auto text = [&](const char* key) {
    const Json value = section.is_object() ? section.value(key, Json()) : Json();
    return value.is_string() ? value.get<std::string>() : std::string();
  };
  const auto on = [&](const char* key) { return section.is_object() && section.value(key, Json()) == Json(true); };
  std::string method = text("quant_method");
  if (method.empty() && (on("load_in_4bit") || on("load_in_8bit"))) method = "bitsandbytes";
  if (method != "bitsandbytes")
    core::raise(
        "model", 11,
        {.what = "the checkpoint is quantised by a method that is not read here",
         .found = "quant_method " + (method.empty() ? section.dump() : method),
         .expected = "quant_method bitsandbytes, gpt-oss in mxfp4, or weights in bf16, f16 or f32",
         .where = where + ", quantization_config",
         .remedy =
             "take the model's unquantised checkpoint; load_in_4bit and load_in_8bit quantise it when it is loaded"});
  if (on("load_in_8bit")) return c10::ScalarType::Undefined;  // that of the model
  return text("bnb_4bit_compute_dtype") == "bfloat16" ? c10::ScalarType::BFloat16 : c10::ScalarType::Float;
}

}  // namespace detail

RLALGO_INLINE HfConfig parse_hf_config(Json json, const std::string& where) {
  json = detail::text_config_of(std::move(json));
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
  // What transformers reads beyond the above, and what changes with it.
  if (const auto dropout = fields.number("attention_dropout"); dropout && *dropout != 0)
    fields.unsupported("attention_dropout", Json(*dropout), "0, as attention has no dropout here");
  if (const auto causal = fields.boolean("is_causal"); causal && !*causal)
    fields.unsupported("is_causal", Json(false), "true: a token sees what is before it");
  if (const Json* layers = fields.find("per_layer_config"); layers != nullptr && !layers->empty())
    fields.unsupported("per_layer_config", *layers, "one configuration for all layers");
  const Json* quantized = fields.find("quantization_config");
  const bool mxfp4 =
      quantized != nullptr && quantized->is_object() && quantized->value("quant_method", Json()) == "mxfp4";
  if (mxfp4 && c.specs.front().experts.joined_files)
    json.erase("quantization_config");  // what is read of its files is no longer quantized (joined_experts.hpp)
  else if (quantized != nullptr)
    out.quantised_compute = detail::quantised_compute(*quantized, where);
  out.eos_token_ids = fields.integers("eos_token_id");
  out.bos_token_id = fields.integer("bos_token_id");
  out.pad_token_id = fields.integer("pad_token_id");
  out.json = std::move(json);
  return out;
}

RLALGO_INLINE HfConfig read_hf_config(const std::filesystem::path& directory) {
  if (!os::is_directory(directory)) {
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
  if (!os::exists(path)) return std::nullopt;
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
