// Definitions of checkpoint_names.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/checkpoint_names.hpp>

namespace rlalgo::model {

namespace detail {

inline constexpr std::string_view adapted_prefix = "base_model.model.";

inline void add_name(NameMap& out, std::string name, const std::string& given, int number, const std::string& where) {
  const auto [at, added] = out.emplace(std::move(name), given);
  if (!added)
    core::raise("model", number,
                {.what = "two tensors of the files have one name in the model",
                 .found = at->second + " and " + given,
                 .expected = at->first + " once",
                 .where = where,
                 .remedy = "remove the one that does not belong to the model"});
}

// PATH.lora_A.NAME.weight → PATH.lora_A.weight: what stands between `part` and the end goes.
inline std::string without_adapter_name(const std::string& name, std::string_view part, std::string_view end) {
  const std::size_t at = name.rfind(part);
  if (at == std::string::npos || !name.ends_with(end) || name.size() < at + part.size() + end.size()) return name;
  return name.substr(0, at + part.size()) + std::string(end);
}

// A path below base_model.model. as PEFT writes it for a model with a head.
inline std::string adapted_path(std::string path) {
  constexpr std::string_view text = "model.language_model.";
  if (path.starts_with(text)) return "model." + path.substr(text.size());
  for (const char* first : {"layers.", "embed_tokens.", "norm."})
    if (path.starts_with(first)) return "model." + path;
  return path;
}

inline std::string adapter_tensor_name(const std::string& given) {
  std::string name = without_wrappers(given);
  const std::size_t at = name.find(adapted_prefix);
  name = std::string(adapted_prefix) +
         adapted_path(at == std::string::npos ? name : name.substr(at + adapted_prefix.size()));
  for (const char* part : {".lora_A", ".lora_B", ".modules_to_save"})
    for (const char* end : {".weight", ".bias"}) name = without_adapter_name(name, part, end);
  for (const char* part : {".lora_magnitude_vector", ".lora_embedding_A", ".lora_embedding_B"})
    name = without_adapter_name(name, part, "");
  return name;
}

}  // namespace detail

RLALGO_INLINE std::string without_wrappers(std::string name) {
  for (const std::string_view wrapper : {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."})
    for (std::size_t at = name.find(wrapper); at != std::string::npos; at = name.find(wrapper, at))
      if (at == 0 || name[at - 1] == '.')
        name.erase(at, wrapper.size());
      else
        at += wrapper.size();
  while (name.starts_with("module.")) name.erase(0, std::string_view("module.").size());
  return name;
}

RLALGO_INLINE NameMap model_tensor_names(const std::vector<std::string>& names, const std::string& where) {
  constexpr std::string_view anchor = "layers.0.input_layernorm.weight";
  std::vector<std::string> bare;
  std::vector<std::string> prefixes;
  bool adapter = false;
  for (const std::string& name : names) {
    bare.push_back(without_wrappers(name));
    const std::string& last = bare.back();
    adapter = adapter || last.starts_with(detail::adapted_prefix);
    // Heads that predict several tokens (mtp.layers.0) are no backbone.
    if (!last.starts_with("mtp.") && (last == anchor || last.ends_with("." + std::string(anchor))))
      prefixes.push_back(last.substr(0, last.size() - anchor.size()));
  }
  // Of two backbones none is the model; an adapter's file has paths of its own.
  const bool known = prefixes.size() == 1 && !adapter;
  const std::string prefix = known ? prefixes.front() : "model.";
  const bool nested = prefix == "model." || prefix.ends_with(".model.");
  const std::string outer = nested ? prefix.substr(0, prefix.size() - std::string_view("model.").size()) : "";
  NameMap out;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string name = bare[i];
    if (nested && name.starts_with(outer)) {
      name.erase(0, outer.size());
    } else if (!nested && name.starts_with(prefix)) {
      const std::string rest = name.substr(prefix.size());
      for (const char* first : {"layers.", "embed_tokens.", "norm."})
        if (rest.starts_with(first)) name = "model." + rest;
    }
    detail::add_name(out, std::move(name), names[i], 14, where);
  }
  return out;
}

RLALGO_INLINE NameMap adapter_tensor_names(const std::vector<std::string>& names, const std::string& where) {
  NameMap out;
  for (const std::string& name : names) detail::add_name(out, detail::adapter_tensor_name(name), name, 30, where);
  NameMap plain;
  constexpr std::string_view saved = ".modules_to_save.weight";
  for (const auto& [name, given] : out) {
    if (!name.ends_with(saved)) continue;
    const std::string path = name.substr(0, name.size() - saved.size()) + ".weight";
    if (!out.contains(path)) plain.emplace(path, given);
  }
  for (const auto& [path, given] : plain) {
    out.erase(path.substr(0, path.size() - std::string_view(".weight").size()) + std::string(saved));
    out.emplace(path, given);
  }
  return out;
}

}  // namespace rlalgo::model
