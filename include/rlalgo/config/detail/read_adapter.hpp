// The keys of adapters: adapter, lora_*, peft_*; and unfrozen_parameters.
//
// Errors (usage): [rlalgo.config.7] lora_r or lora_alpha is missing; [rlalgo.config.8] keys that exclude each other;
// [rlalgo.config.10] an adapter that is not in this build; [rlalgo.config.14] lora_model_dir without an adapter.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/detail/read_quantisation.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

inline constexpr const char* adapter_keys[] = {"lora_r",
                                               "lora_alpha",
                                               "lora_dropout",
                                               "lora_target_modules",
                                               "lora_target_linear",
                                               "lora_modules_to_save",
                                               "lora_rank_pattern",
                                               "lora_alpha_pattern",
                                               "peft_layers_to_transform",
                                               "peft_layers_pattern",
                                               "peft_use_dora",
                                               "peft_use_rslora",
                                               "peft_init_lora_weights",
                                               "lora_fan_in_fan_out",
                                               "lora_target_parameters",
                                               "peft",
                                               "peft_layer_replication",
                                               "peft_trainable_token_indices",
                                               "peft_ensure_weight_tying"};

template <class Value>
void read_pattern(Reader& reader, const std::string& key, std::vector<std::pair<std::string, Value>>& out) {
  reader.record(key, out);
  const Node* node = reader.take(key);
  if (node == nullptr) return;
  reader.judge(key, [&] {
    if (node->kind != Kind::mapping) raise_type(key, *node, "a section of pattern: number lines");
    for (const Member& member : node->members) {
      Value value{};
      convert(member.value, key + "." + member.key, value);
      out.emplace_back(member.key, value);
    }
  });
}

// A list of names, or a text: one pattern.
inline void read_targets(Reader& reader, model::LoraConfig& lora) {
  reader.record("lora_target_modules", lora.target_modules);
  reader.record("lora_target_pattern", lora.target_pattern);
  const Node* node = reader.take("lora_target_modules");
  if (node != nullptr)
    reader.judge("lora_target_modules", [&] {
      if (node->kind == Kind::sequence)
        convert(*node, "lora_target_modules", lora.target_modules);
      else
        convert(*node, "lora_target_modules", lora.target_pattern);
    });
  bool linear = false;
  reader.read("lora_target_linear", linear);
  if (!linear) return;
  if (!lora.target_pattern.empty() && lora.target_pattern != "all-linear")
    lora.target_modules.push_back(std::exchange(lora.target_pattern, {}));
  lora.target_pattern.clear();
  lora.every_linear = true;
}

// false counts as unset, as in axolotl.
inline void read_initialisation(Reader& reader, model::LoraConfig& lora) {
  reader.record("peft_init_lora_weights", lora.init);
  const Node* node = reader.take("peft_init_lora_weights");
  if (node == nullptr || node->kind == Kind::boolean) return;
  static const std::vector<std::pair<std::string, model::LoraInit>> known = {
      {"gaussian", model::LoraInit::gaussian},
      {"pissa", model::LoraInit::pissa},
      {"orthogonal", model::LoraInit::orthogonal}};
  for (const auto& [name, init] : known)
    if (node->text == name) return void(lora.init = init);
  refuse_lacking(reader, "peft_init_lora_weights", "peft_init_lora_weights " + node->text, *node,
                 "use true, gaussian, pissa or orthogonal");
}

inline void read_lora(Reader& reader, model::LoraConfig& lora) {
  reader.read("lora_r", lora.r);
  reader.read("lora_alpha", lora.alpha);
  reader.read("lora_dropout", lora.dropout);
  read_targets(reader, lora);
  reader.read("lora_target_parameters", lora.target_parameters);
  reader.read("lora_modules_to_save", lora.modules_to_save);
  read_pattern(reader, "lora_rank_pattern", lora.rank_pattern);
  read_pattern(reader, "lora_alpha_pattern", lora.alpha_pattern);
  reader.read("peft_layers_to_transform", lora.layers_to_transform);
  reader.read("peft_layers_pattern", lora.layers_pattern);
  reader.read("peft_use_dora", lora.use_dora);
  reader.read("peft_use_rslora", lora.use_rslora);
  read_initialisation(reader, lora);
  static constexpr RecognisedKey lacking[] = {
      {"lora_fan_in_fan_out", "the linear maps of these models keep their weights as [out, in]", false},
      {"peft", "LoftQ starts from quantized weights; remove the section"},
      {"peft_layer_replication", "every layer exists once"},
      {"peft_trainable_token_indices", "put embed_tokens into lora_modules_to_save"},
      {"peft_ensure_weight_tying",
       "name embed_tokens or lm_head in lora_modules_to_save; each becomes its own tensor"}};
  apply_lacking(reader, lacking);
}

// What an adapter cannot do without, and what excludes it.
inline void judge_adapter(Reader& reader, const RunConfig& config, const std::string& where) {
  for (const char* key : {"lora_r", "lora_alpha"})
    if (!reader.given(key) && !config.lora_model_dir)
      reader.refuse(7,
                    {.what = std::string(key) + " is missing", .expected = std::string(key) + ": 16", .where = where});
  if (config.lora->target_modules.empty() && config.lora->target_pattern.empty() && !config.lora->every_linear &&
      config.lora->target_parameters.empty() && !config.lora_model_dir &&
      !reader.findings().refusals.distrusts("lora_target_modules"))
    reader.refuse(7, {.what = "adapter: lora names no modules",
                      .expected = "lora_target_linear: true, or lora_target_modules: [q_proj, v_proj]",
                      .where = where});
  if (!config.unfrozen_parameters.empty())
    reader.refuse(8, {.what = "unfrozen_parameters does not go with adapter: lora",
                      .where = reader.section().find("unfrozen_parameters")->place.text(),
                      .remedy = "an adapter freezes the base; name whole modules in lora_modules_to_save"});
}

inline void read_adapter(Reader& reader, RunConfig& config) {
  reader.read("unfrozen_parameters", config.unfrozen_parameters);
  reader.read("lora_model_dir", config.lora_model_dir);
  const Node* node = reader.take("adapter");
  const bool known = node != nullptr && (node->text == "lora" || node->text == "qlora");
  if (known) {
    read_quantised_base(reader, config, *node);
    read_lora(reader, config.lora.emplace());
    return judge_adapter(reader, config, node->place.text());
  }
  if (node != nullptr)
    refuse_lacking(reader, "adapter", "adapter " + node->text, *node, "set adapter: lora");
  else if (config.lora_model_dir)
    reader.refuse(14, {.what = "lora_model_dir has no adapter to go with",
                       .found = *config.lora_model_dir,
                       .where = reader.section().find("lora_model_dir")->place.text(),
                       .remedy = "set adapter: lora"});
  for (const char* key : quantisation_keys) {
    const RecognisedKey one{key, "the base is not quantised"};
    apply_idle(reader, std::span(&one, 1));
  }
  for (const char* key : adapter_keys) {
    const RecognisedKey one{key, "there is no adapter (adapter: lora makes one)"};
    apply_idle(reader, std::span(&one, 1));
  }
}

}  // namespace rlalgo::config::detail
