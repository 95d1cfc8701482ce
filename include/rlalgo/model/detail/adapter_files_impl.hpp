// Definitions of adapter_files.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/regular_file.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/safetensors.hpp>

namespace rlalgo::model {

RLALGO_INLINE bool is_adapter_directory(const std::filesystem::path& directory) {
  return core::exists(directory / adapter_config_file);
}

RLALGO_INLINE Json adapter_config_json(const LoraConfig& c, const std::string& base_model) {
  const auto names = [](std::vector<std::string> list) {
    std::sort(list.begin(), list.end());
    return list.empty() ? Json() : Json(list);
  };
  const auto number = [](double value) {
    return value == std::floor(value) ? Json(static_cast<std::int64_t>(value)) : Json(value);
  };
  static const std::map<LoraInit, Json> inits = {{LoraInit::standard, true},
                                                 {LoraInit::random, false},
                                                 {LoraInit::gaussian, "gaussian"},
                                                 {LoraInit::pissa, "pissa"},
                                                 {LoraInit::orthogonal, "orthogonal"}};
  Json alphas = Json::object(), ranks = Json::object();
  for (const auto& [key, value] : c.alpha_pattern) alphas[key] = number(value);
  for (const auto& [key, value] : c.rank_pattern) ranks[key] = value;
  Json out = {{"alora_invocation_tokens", nullptr},
              {"alpha_pattern", alphas},
              {"arrow_config", nullptr},
              {"auto_mapping", nullptr},
              {"base_model_name_or_path", base_model},
              {"bias", "none"},
              {"corda_config", nullptr},
              {"ensure_weight_tying", false},
              {"eva_config", nullptr},
              {"exclude_modules", names(c.exclude_modules)},
              {"fan_in_fan_out", false},
              {"inference_mode", true},
              {"init_lora_weights", inits.at(c.init)},
              {"layer_replication", nullptr},
              {"layers_pattern", c.layers_pattern.empty() ? Json() : Json(c.layers_pattern)},
              {"layers_to_transform", c.layers_to_transform.empty() ? Json() : Json(c.layers_to_transform)},
              {"loftq_config", Json::object()},
              {"lora_alpha", number(c.alpha)},
              {"lora_bias", false},
              {"lora_dropout", c.dropout},
              {"lora_ga_config", nullptr},
              {"megatron_config", nullptr},
              {"megatron_core", "megatron.core"},
              {"modules_to_save", names(c.modules_to_save)},
              {"peft_type", "LORA"},
              {"peft_version", "0.19.1"},
              {"qalora_group_size", 16},
              {"r", c.r},
              {"rank_pattern", ranks},
              {"revision", nullptr},
              {"target_modules", c.target_modules.empty() ? Json(c.target_pattern) : names(c.target_modules)},
              {"target_parameters", nullptr},
              {"task_type", "CAUSAL_LM"},
              {"trainable_token_indices", nullptr},
              {"use_bdlora", nullptr},
              {"use_dora", c.use_dora},
              {"use_qalora", false},
              {"use_rslora", c.use_rslora}};
  return out;
}

namespace detail {

RLALGO_INLINE void raise_adapter_config(const std::string& key, const std::string& found, const std::string& expected,
                                        const std::string& where) {
  core::raise(
      "model", 28,
      {.what = "adapter_config.json is malformed: " + key, .found = found, .expected = expected, .where = where});
}

RLALGO_INLINE std::vector<std::string> name_list_of(const JsonFields& fields, const std::string& key) {
  const Json* value = fields.find(key);
  std::vector<std::string> out;
  if (value == nullptr) return out;
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) raise_adapter_config(key, value->dump(), "a list of names", fields.where());
  for (const Json& name : *value) {
    if (!name.is_string()) raise_adapter_config(key, name.dump(), "a name", fields.where());
    out.push_back(name.get<std::string>());
  }
  return out;
}

RLALGO_INLINE void refuse_adapter_features(const JsonFields& fields) {
  const auto refuse = [&](const std::string& key, const Json& value, const std::string& remedy) {
    core::raise("model", 29,
                {.what = "the adapter uses a feature that is not supported: " + key,
                 .found = value.dump(),
                 .where = fields.where(),
                 .remedy = remedy});
  };
  if (const auto type = fields.text("peft_type"); !type || *type != "LORA")
    refuse("peft_type", type ? Json(*type) : Json(), "use a LoRA adapter");
  if (const auto bias = fields.text("bias"); bias && *bias != "none")
    refuse("bias", Json(*bias), "train the adapter with bias: none");
  for (const char* key : {"lora_bias", "use_qalora", "layer_replication", "trainable_token_indices", "use_bdlora",
                          "alora_invocation_tokens", "target_parameters", "arrow_config"}) {
    const Json* value = fields.find(key);
    if (value != nullptr && !(value->is_boolean() && !value->get<bool>()) && !(value->is_array() && value->empty()) &&
        !(value->is_object() && value->empty()))
      refuse(key, *value, "merge the adapter with PEFT and use the merged model");
  }
}

RLALGO_INLINE LoraInit lora_init(const JsonFields& fields) {
  const Json* value = fields.find("init_lora_weights");
  if (value == nullptr || *value == true) return LoraInit::standard;
  if (*value == false) return LoraInit::random;
  if (*value == "gaussian" || *value == "eva") return LoraInit::gaussian;
  if (*value == "pissa") return LoraInit::pissa;
  if (*value == "orthogonal") return LoraInit::orthogonal;
  core::raise("model", 29,
              {.what = "the adapter's initialisation changed its base model in a way that cannot be repeated",
               .found = value->dump(),
               .expected = "true, false, gaussian, eva, pissa or orthogonal",
               .where = fields.where(),
               .remedy = "convert it with PEFT (path_initial_model_for_weight_conversion), or merge it there"});
}

}  // namespace detail

RLALGO_INLINE LoraConfig parse_adapter_config(const Json& json, const std::string& where) {
  const detail::JsonFields fields(json, where);
  detail::refuse_adapter_features(fields);
  LoraConfig c;
  c.r = fields.integer("r").value_or(8);
  c.alpha = fields.number("lora_alpha").value_or(8.0);
  c.dropout = fields.number("lora_dropout").value_or(0.0);
  if (const Json* targets = fields.find("target_modules"); targets != nullptr && targets->is_string())
    c.target_pattern = targets->get<std::string>();
  else
    c.target_modules = detail::name_list_of(fields, "target_modules");
  c.exclude_modules = detail::name_list_of(fields, "exclude_modules");
  c.modules_to_save = detail::name_list_of(fields, "modules_to_save");
  c.layers_to_transform = fields.integers("layers_to_transform");
  c.layers_pattern = detail::name_list_of(fields, "layers_pattern");
  c.rank_pattern = detail::pattern_map<std::int64_t>(fields, "rank_pattern");
  c.alpha_pattern = detail::pattern_map<double>(fields, "alpha_pattern");
  c.use_rslora = fields.boolean("use_rslora").value_or(false);
  c.use_dora = fields.boolean("use_dora").value_or(false);
  c.init = detail::lora_init(fields);
  check_lora(c);
  return c;
}

RLALGO_INLINE LoraConfig read_adapter_config(const std::filesystem::path& directory) {
  const auto path = directory / adapter_config_file;
  if (!core::exists(path))
    core::raise("model", 28,
                {.what = "there is no adapter in the directory",
                 .found = std::string("no ") + adapter_config_file,
                 .where = directory.string(),
                 .remedy = "name a PEFT directory, or train one first"});
  return parse_adapter_config(detail::read_json_file(path), path.string());
}

RLALGO_INLINE std::string adapter_base_model(const std::filesystem::path& directory) {
  const auto path = directory / adapter_config_file;
  const Json json = detail::read_json_file(path);
  const auto name = detail::JsonFields(json, path.string()).text("base_model_name_or_path");
  if (!name || name->empty())
    detail::raise_adapter_config("base_model_name_or_path", "nothing", "a directory or an id", path.string());
  return *name;
}

RLALGO_INLINE std::vector<NamedTensor> adapter_tensors(const Decoder& decoder) {
  std::vector<NamedTensor> out;
  decoder.visit_adapter([&](const std::string& name, const Tensor& value) {
    out.emplace_back(Decoder::adapter_prefix + name, value.detach());
  });
  return out;
}

RLALGO_INLINE void save_adapter(const Decoder& decoder, const std::filesystem::path& directory,
                                const std::string& base_model) {
  if (decoder.adapter() == nullptr) core::raise("model", 28, {.what = "the model has no adapter to save"});
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) core::raise_file_error("cannot create the directory", directory, error.value());
  PendingTensors tensors;
  for (const auto& [name, value] : adapter_tensors(decoder)) tensors.push_back(pending(decoder, name, value));
  write_pending_safetensors(directory / adapter_weights_file, std::move(tensors));
  core::write_file(directory / adapter_config_file, adapter_config_json(decoder.adapter()->config, base_model).dump(2));
}

namespace detail {

RLALGO_INLINE bool is_stored_embedding(const std::string& name) {
  const std::string prefix = Decoder::adapter_prefix;
  for (const char* path : {"model.embed_tokens", "lm_head"})
    for (const char* end : {".weight", ".base_layer.weight"})
      if (name == prefix + path + end) return true;
  return false;
}

RLALGO_INLINE void keep_stored_modules(LoraConfig& c, const std::vector<std::string>& modules,
                                       const std::set<std::string>& stored) {
  std::vector<std::string> ended;
  bool complete = true;
  for (const std::string& path : modules) {
    const bool there = stored.contains(Decoder::adapter_prefix + path + ".weight");
    if (std::any_of(c.modules_to_save.begin(), c.modules_to_save.end(),
                    [&](const std::string& entry) { return ends_path(path, entry); })) {
      if (!there) return;
      ended.push_back(path);
    } else if (is_saved_module(c, path)) {
      if (there) return;
      complete = false;
    }
  }
  if (!complete && !ended.empty()) c.modules_to_save = std::move(ended);
}

}  // namespace detail

RLALGO_INLINE void load_adapter(Decoder& decoder, const std::filesystem::path& directory, std::uint64_t seed) {
  LoraConfig config = read_adapter_config(directory);
  const SafetensorsFile file(directory / adapter_weights_file);
  std::set<std::string> stored;
  for (const auto& [name, entry] : file.entries()) stored.insert(name);
  detail::keep_stored_modules(config, decoder_modules(decoder.config(), decoder.weights()).all, stored);
  const auto misfit = [&](const std::string& what, const std::string& found, const std::string& expected) {
    core::raise("model", 30,
                {.what = what,
                 .found = found,
                 .expected = expected,
                 .where = file.path().string(),
                 .remedy = "the adapter was trained on another base model, or a file is incomplete"});
  };
  detail::attach_lora(decoder, config, seed, TargetCheck::some, /*continued=*/true);
  const c10::NoGradGuard no_grad;
  std::set<std::string> expected;
  for (auto& [name, value] : adapter_tensors(decoder)) {
    expected.insert(name);
    const auto found = file.entries().find(name);
    if (found == file.entries().end()) misfit("the adapter lacks a tensor", "", name);
    if (found->second.shape != value.sizes().vec())
      misfit("a tensor of the adapter has a wrong shape", Json(found->second.shape).dump() + ", tensor " + name,
             Json(value.sizes().vec()).dump());
    value.copy_(file.read(name));
  }
  for (const auto& [name, entry] : file.entries())
    if (!expected.contains(name) && !detail::is_stored_embedding(name))
      misfit("the adapter has a tensor without a place in the model", name, "the tensors that its config names");
}

}  // namespace rlalgo::model
