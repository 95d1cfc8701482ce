// Adapters as PEFT keeps them: adapter_config.json and adapter_model.safetensors.
//
//   adapter_config.json         PEFT 0.19's keys, sorted, indent 2
//   adapter_model.safetensors   base_model.model.<path>.lora_A.weight [r, in] · .lora_B.weight [out, r] ·
//                               .lora_magnitude_vector [out] · of target_parameters P mlp.experts[.base_layer].lora_A.weight [E·r, in] and
//                               .lora_B.weight [out, r·E] (expert_adapter.hpp) · base_model.model.<module>.weight of modules to save ·
//                               embeddings of the base that was trained on (save_embedding_layers, a resized vocabulary):
//                               base_model.model.{model.embed_tokens, lm_head}[.base_layer, .original_module].weight
//
// Embeddings that lie beside an adapter take the place of the base's, with their own vocabulary; equal ones are the base's.
// Where only a module to save has another vocabulary, its new rows stand for those of the base below it.
// Every key of the configuration is used, or changes nothing of what a trained adapter computes, or is refused when it is set.
//
// PEFT loads what we save and computes the same, and the other way round (scripts/fixtures/model_adapters.py). The directory has
// no config.json: transformers takes one with it for a whole model and finds no weights. PiSSA is
// saved as what was trained, relative to the base that its initialisation leaves, with init_lora_weights "pissa": as in
// PEFT, a reader repeats the decomposition of the base.
//
// Errors: [rlalgo.model.28] adapter_config.json is missing or malformed, or its weights are a pickle; [.29] the adapter uses
// what is not supported; [.30] a tensor is missing, unexpected, of a wrong shape, or there twice with two contents.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/model/checkpoint_names.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/detail/config_fields.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/safetensors.hpp>

namespace rlalgo::model {

inline constexpr const char* adapter_config_file = "adapter_config.json";
inline constexpr const char* adapter_weights_file = "adapter_model.safetensors";

[[nodiscard]] bool is_adapter_directory(const std::filesystem::path& directory);

// adapter_config.json of an adapter over `base_model`.
[[nodiscard]] Json adapter_config_json(const LoraConfig& c, const std::string& base_model);

namespace detail {

[[noreturn]] void raise_adapter_config(const std::string& key, const std::string& found, const std::string& expected,
                                       const std::string& where);

// A list of names; a single name counts as one.
[[nodiscard]] std::vector<std::string> name_list_of(const JsonFields& fields, const std::string& key);

template <class Value>
[[nodiscard]] std::vector<std::pair<std::string, Value>> pattern_map(const JsonFields& fields, const std::string& key) {
  const Json* value = fields.find(key);
  std::vector<std::pair<std::string, Value>> out;
  if (value == nullptr) return out;
  if (!value->is_object()) raise_adapter_config(key, value->dump(), "{pattern: number}", fields.where());
  for (const auto& [pattern, number] : value->items()) {
    if (!number.is_number()) raise_adapter_config(key, number.dump(), "a number", fields.where());
    out.emplace_back(pattern, number.template get<Value>());
  }
  return out;
}

// What would make the adapter compute something else than we do, and keys that nobody knows.
void refuse_adapter_features(const JsonFields& fields);

[[nodiscard]] LoraInit lora_init(const JsonFields& fields);

}  // namespace detail

[[nodiscard]] LoraConfig parse_adapter_config(const Json& json, const std::string& where);

[[nodiscard]] LoraConfig read_adapter_config(const std::filesystem::path& directory);

// The base model that an adapter names, and its revision ("": none).
[[nodiscard]] std::string adapter_base_model(const std::filesystem::path& directory);
[[nodiscard]] std::string adapter_base_revision(const std::filesystem::path& directory);

// The tensors of a directory's adapter_model.safetensors under the names that PEFT gives them.
class AdapterTensors {
 public:
  explicit AdapterTensors(const std::filesystem::path& directory);

  [[nodiscard]] const NameMap& names() const { return names_; }
  [[nodiscard]] bool contains(const std::string& name) const { return names_.contains(name); }
  [[nodiscard]] const std::vector<std::int64_t>& shape(const std::string& name) const {
    return file_.entries().at(names_.at(name)).shape;
  }
  [[nodiscard]] Tensor map(const std::string& name) const { return file_.map(names_.at(name)); }
  [[nodiscard]] const std::filesystem::path& path() const { return file_.path(); }

 private:
  SafetensorsFile file_;
  NameMap names_;
};

// The tensors of a decoder's adapter under the names of its file; modules to save included.
[[nodiscard]] std::vector<NamedTensor> adapter_tensors(const Decoder& decoder);

// A PEFT directory, without tokenizer and config.json of the base.
void save_adapter(const Decoder& decoder, const std::filesystem::path& directory, const std::string& base_model);

namespace detail {

[[noreturn]] void raise_adapter_misfit(const AdapterTensors& tensors, const std::string& what, const std::string& found,
                                       const std::string& expected);

// The base's embeddings [V, H] below an adapter; undefined: the file has none.
struct AdapterEmbeddings {
  Tensor input, output;
};
// Those of the file.
[[nodiscard]] AdapterEmbeddings stored_embeddings(const AdapterTensors& tensors, const LoraConfig& config);
// Those that the base gets instead of its own, which are `base` (one tensor if tied) in dtype and device; both undefined if
// nothing of them differs.
[[nodiscard]] AdapterEmbeddings new_embeddings(const AdapterTensors& tensors, const LoraConfig& config,
                                               const AdapterEmbeddings& base, bool tied);

// True for what stored_embeddings() reads, and for a module to save that the file has twice. [rlalgo.model.30] twice, and
// not the same.
[[nodiscard]] bool is_read_elsewhere(const AdapterTensors& tensors, const std::string& name);

// Adapters of earlier builds have, of the modules that an entry of modules_to_save names, only those whose path ends with the
// entry as a whole component (model.norm of "norm", no input_layernorm). Where a file has exactly those, the entries become
// their paths, which name nothing else.
void keep_stored_modules(LoraConfig& c, const std::vector<std::string>& modules, const std::set<std::string>& stored);

}  // namespace detail

// Adds a saved adapter to a decoder without one. `seed` draws its dropout when it is trained on.
void load_adapter(Decoder& decoder, const std::filesystem::path& directory, std::uint64_t seed = 0);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/adapter_files_impl.hpp>
#endif
