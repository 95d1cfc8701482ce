// Definitions of adapter_files.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/checkpoint_names.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

RLALGO_INLINE bool is_adapter_directory(const std::filesystem::path& directory) {
  return os::exists(directory / adapter_config_file);
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
              {"exclude_modules", c.exclude_modules.empty() && !c.exclude_pattern.empty() ? Json(c.exclude_pattern)
                                                                                          : names(c.exclude_modules)},
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
              {"target_modules", !c.target_modules.empty()      ? names(c.target_modules)
                                 : !c.target_parameters.empty() ? Json::array()
                                                                : Json(c.target_pattern)},
              {"target_parameters", names(c.target_parameters)},
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
  // Read here or above; or of the first values, of the training, or of layers that these models have not.
  static const std::set<std::string> known = {
      "peft_type", "bias", "r", "lora_alpha", "lora_dropout", "target_modules", "target_parameters", "exclude_modules",
      "modules_to_save", "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern", "use_rslora",
      "use_dora", "init_lora_weights", "base_model_name_or_path", "revision", "ensure_weight_tying",
      // first values; an initialisation that changes the base is refused by lora_init()
      "eva_config", "corda_config", "loftq_config", "lora_ga_config",
      // training
      "inference_mode", "task_type", "velora_config",
      // PEFT sets fan_in_fan_out to false for torch's linear maps; the others belong to switches that are off
      "fan_in_fan_out", "megatron_core", "qalora_group_size",
      // who wrote it
      "peft_version", "auto_mapping"};
  const auto off = [](const Json& value) {
    return value.is_null() || value == false || value == "" || (value.is_structured() && value.empty());
  };
  for (const auto& [key, value] : fields.object().items())
    if (!known.contains(key) && !off(value))
      refuse(key, value,
             "merge the adapter with PEFT and use the merged model; a key that changes nothing can be removed");
  if (!fields.boolean("ensure_weight_tying").value_or(false)) return;
  for (const char* key : {"modules_to_save", "target_modules"})
    for (const std::string& name : name_list_of(fields, key))
      if (name.ends_with("embed_tokens") || name.ends_with("lm_head"))
        refuse("ensure_weight_tying", Json(true),
               "merge the adapter with PEFT, or set it to false if the base is not tied");
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
  if (const Json* excluded = fields.find("exclude_modules"); excluded != nullptr && excluded->is_string())
    c.exclude_pattern = excluded->get<std::string>();
  else
    c.exclude_modules = detail::name_list_of(fields, "exclude_modules");
  c.target_parameters = detail::name_list_of(fields, "target_parameters");
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
  if (!os::exists(path))
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

RLALGO_INLINE std::string adapter_base_revision(const std::filesystem::path& directory) {
  const auto path = directory / adapter_config_file;
  const Json json = detail::read_json_file(path);
  return detail::JsonFields(json, path.string()).text("revision").value_or("");
}

namespace detail {

inline std::filesystem::path adapter_weights_path(const std::filesystem::path& directory) {
  const auto path = directory / adapter_weights_file;
  if (!os::exists(path) && os::exists(directory / "adapter_model.bin"))
    core::raise("model", 28,
                {.what = "the adapter's weights are a Python pickle, which is not read",
                 .found = "adapter_model.bin",
                 .expected = adapter_weights_file,
                 .where = directory.string(),
                 .remedy = "load it with PEFT and save it again (save_pretrained)"});
  return path;
}

inline std::vector<std::string> names_in(const SafetensorsFile& file) {
  std::vector<std::string> out;
  for (const auto& [name, entry] : file.entries()) out.push_back(name);
  return out;
}

}  // namespace detail

RLALGO_INLINE AdapterTensors::AdapterTensors(const std::filesystem::path& directory)
    : file_(detail::adapter_weights_path(directory)),
      names_(adapter_tensor_names(detail::names_in(file_), file_.path().string())) {}

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
  if (error) os::raise_file_error("cannot create the directory", directory, error.value());
  PendingTensors tensors;
  for (const auto& [name, value] : adapter_tensors(decoder)) tensors.push_back(pending(decoder, name, value));
  write_pending_safetensors(directory / adapter_weights_file, std::move(tensors));
  os::write_file(directory / adapter_config_file, adapter_config_json(decoder.adapter()->config, base_model).dump(2));
}

namespace detail {

RLALGO_INLINE void raise_adapter_misfit(const AdapterTensors& tensors, const std::string& what,
                                        const std::string& found, const std::string& expected) {
  core::raise("model", 30,
              {.what = what,
               .found = found,
               .expected = expected,
               .where = tensors.path().string(),
               .remedy = "the adapter was trained on another base model, or a file is incomplete"});
}

inline constexpr const char* input_path = "model.embed_tokens";
inline constexpr const char* output_path = "lm_head";

inline std::string in_adapter(const std::string& path) { return Decoder::adapter_prefix + path; }

RLALGO_INLINE AdapterEmbeddings stored_embeddings(const AdapterTensors& tensors, const LoraConfig& config) {
  const auto one = [&](const std::string& path) {
    Tensor out;
    std::string first;
    for (const char* end : {".base_layer.weight", ".original_module.weight", ".weight"}) {
      const std::string name = in_adapter(path) + end;
      if (!tensors.contains(name) || (end == std::string(".weight") && is_saved_module(config, path))) continue;
      const Tensor found = tensors.map(name);
      if (out.defined() && !out.equal(found))
        raise_adapter_misfit(tensors, "the adapter has two embeddings of the base that differ", first + " and " + name,
                             in_adapter(path) + ".weight once");
      out = found;
      first = name;
    }
    return out;
  };
  return {one(input_path), one(output_path)};
}

// `base` with the rows of `own`, a module to save: the base's as far as it has them, then those of `own`.
inline Tensor with_rows_of(const Tensor& base, const Tensor& own) {
  const std::int64_t rows = own.size(0), kept = std::min(rows, base.size(0));
  Tensor out = tensor::empty({rows, base.size(1)}, base.options());
  out.narrow(0, 0, kept).copy_(base.narrow(0, 0, kept));
  if (rows > kept) out.narrow(0, kept, rows - kept).copy_(own.narrow(0, kept, rows - kept));
  return out;
}

RLALGO_INLINE AdapterEmbeddings new_embeddings(const AdapterTensors& tensors, const LoraConfig& config,
                                               const AdapterEmbeddings& base, bool tied) {
  const std::int64_t hidden = base.input.size(1);
  const auto check = [&](const Tensor& found, const std::string& path) {
    if (found.dim() != 2 || found.size(1) != hidden)
      raise_adapter_misfit(tensors, "a tensor of the adapter has a wrong shape",
                           Json(found.sizes().vec()).dump() + ", tensor " + in_adapter(path) + ".weight",
                           "[vocabulary," + std::to_string(hidden) + "]");
  };
  // A copy: the file may be replaced.
  const auto like = [&](const Tensor& value) {
    return tensor::empty(value.sizes().vec(), base.input.options()).copy_(value);
  };
  const AdapterEmbeddings stored = stored_embeddings(tensors, config);
  AdapterEmbeddings out = base;
  for (const auto& [value, path] : {std::pair(stored.input, input_path), std::pair(stored.output, output_path)})
    if (value.defined()) check(value, path);
  if (tied) {
    if (stored.input.defined() && stored.output.defined() && !stored.input.equal(stored.output))
      raise_adapter_misfit(tensors, "the adapter has two embeddings, and its base has one for input and output",
                           "model.embed_tokens and lm_head that differ", "equal ones");
    const Tensor& one = stored.input.defined() ? stored.input : stored.output;
    if (one.defined()) out.input = out.output = like(one);
  } else {
    if (stored.input.defined()) out.input = like(stored.input);
    if (stored.output.defined()) out.output = like(stored.output);
  }
  const auto saved = [&](const std::string& path) {
    const std::string name = in_adapter(path) + ".weight";
    if (!is_saved_module(config, path) || !tensors.contains(name)) return Tensor();
    const Tensor value = tensors.map(name);
    check(value, path);
    return value;
  };
  const Tensor saved_input = saved(input_path), saved_output = saved(output_path);
  const auto resize = [](Tensor& value, const Tensor& own) {
    if (own.defined() && own.size(0) != value.size(0)) value = with_rows_of(value, own);
  };
  if (tied && saved_input.defined() && saved_output.defined() && out.input.size(0) != saved_input.size(0)) {
    resize(out.input, saved_input);
    out.output = out.input;
  } else {
    resize(out.input, saved_input);
    resize(out.output, saved_output);
  }
  if (out.input.size(0) != out.output.size(0))
    raise_adapter_misfit(
        tensors, "the adapter has another vocabulary than its base, and one embedding of it",
        std::to_string(out.input.size(0)) + " tokens in, " + std::to_string(out.output.size(0)) + " out",
        "both embeddings (PEFT: save_embedding_layers=True)");
  if (out.input.equal(base.input) && out.output.equal(base.output)) return {};
  return out;
}

RLALGO_INLINE bool is_read_elsewhere(const AdapterTensors& tensors, const std::string& name) {
  for (const char* path : {input_path, output_path})
    for (const char* end : {".weight", ".base_layer.weight", ".original_module.weight"})
      if (name == in_adapter(path) + end) return true;
  constexpr std::string_view twice = ".modules_to_save.weight";
  if (!name.ends_with(twice)) return false;
  const std::string once = name.substr(0, name.size() - twice.size()) + ".weight";
  if (!tensors.contains(once)) return false;
  if (!tensors.map(name).equal(tensors.map(once)))
    raise_adapter_misfit(tensors, "the adapter has a module to save twice, and not the same", name,
                         "what " + once + " is");
  return true;
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
  const AdapterTensors tensors(directory);
  std::set<std::string> stored;
  for (const auto& [name, given] : tensors.names()) stored.insert(name);
  detail::keep_stored_modules(config, decoder_modules(decoder.config(), decoder.weights()).all, stored);
  const c10::NoGradGuard no_grad;
  {
    const DecoderWeights& base = decoder.weights();
    const bool tied = base.lm_head.const_data_ptr() == base.embedding.const_data_ptr();
    const detail::AdapterEmbeddings own =
        detail::new_embeddings(tensors, config, {base.embedding.detach(), base.lm_head.detach()}, tied);
    if (own.input.defined()) decoder.replace_embeddings(own.input, own.output);
  }
  detail::attach_lora(decoder, config, seed, TargetCheck::some, /*continued=*/true);
  std::set<std::string> expected;
  for (auto& [name, value] : adapter_tensors(decoder)) {
    expected.insert(name);
    if (!tensors.contains(name)) {
      const std::string path = name.substr(std::string_view(Decoder::adapter_prefix).size());
      const bool base = path.starts_with(std::string(detail::input_path) + ".") ||
                        path == std::string(detail::output_path) + ".weight" ||
                        path.find(".base_layer.") != std::string::npos;
      if (base && !is_saved_module(config, path.substr(0, path.rfind('.')))) continue;  // the base's, in place already
      detail::raise_adapter_misfit(tensors, "the adapter lacks a tensor", "", name);
    }
    if (tensors.shape(name) != value.sizes().vec())
      detail::raise_adapter_misfit(tensors, "a tensor of the adapter has a wrong shape",
                                   Json(tensors.shape(name)).dump() + ", tensor " + name,
                                   Json(value.sizes().vec()).dump());
    value.copy_(tensors.map(name));
  }
  for (const auto& [name, given] : tensors.names())
    if (!expected.contains(name) && !detail::is_read_elsewhere(tensors, name))
      detail::raise_adapter_misfit(tensors, "the adapter has a tensor without a place in the model", given,
                                   "the tensors that its config names");
}

}  // namespace rlalgo::model
