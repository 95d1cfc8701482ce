// The keys of adapters: adapter, lora_*, peft_*; and unfrozen_parameters.
//
// Errors (usage): [rlalgo.config.7] lora_r or lora_alpha is missing; [rlalgo.config.8] keys that exclude each other;
// [rlalgo.config.10] an adapter that is not in this build; [rlalgo.config.14] lora_model_dir without an adapter.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_quantisation.hpp>
#include <rlalgo/config/detail/read_rows.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

// lora_target_linear adds these.
inline void target_linear(model::LoraConfig& lora) {
  if (!lora.target_pattern.empty() && lora.target_pattern != "all-linear")
    lora.target_modules.push_back(std::exchange(lora.target_pattern, {}));
  lora.target_pattern.clear();
  lora.every_linear = true;
}

// clang-format off
[[nodiscard]] inline std::span<const Reason> lacking_adapter_keys() {
  static constexpr Reason reasons[] = {
    {"lora_fan_in_fan_out", "the linear maps of these models keep their weights as [out, in]", "", "model/linear.hpp out", false},
    {"peft", "LoftQ starts from quantized weights; remove the section", "", "model/detail/adapter_files_impl.hpp \"loftq_config\", Json::object()"},
    {"peft_layer_replication", "every layer exists once", "", "model/detail/adapter_files_impl.hpp \"layer_replication\", nullptr"},
    {"peft_trainable_token_indices", "put embed_tokens into lora_modules_to_save"},
    {"peft_ensure_weight_tying", "name embed_tokens or lm_head in lora_modules_to_save; each becomes its own tensor"}};
  return reasons;
}
// clang-format on

inline void read_lora(Reader& reader, model::LoraConfig& lora) {
  read_rows(reader, adapter_keys(lora));
  reader.record("lora_target_pattern", lora.target_pattern);
  bool linear = false;
  reader.read("lora_target_linear", linear);
  if (linear) target_linear(lora);
  apply_lacking(reader, lacking_adapter_keys());
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
  const Node* node = reader.take("adapter");
  const bool known = node != nullptr && (node->text == "lora" || node->text == "qlora");
  if (known) {
    read_quantised_base(reader, config.bnb, *node);
    read_lora(reader, config.lora.emplace());
    if (config.trl.disable_dropout && config.lora_model_dir)
      reader.refuse_own(10, {.what = "this build has no trl.disable_dropout with lora_model_dir",
                             .where = node->place.text(),
                             .remedy = "set lora_dropout: 0 in its adapter_config.json"});
    if (config.trl.disable_dropout && std::exchange(config.lora->dropout, 0.0) > 0.0)
      reader.findings().warnings.push_back("lora_dropout (" + reader.section().find("lora_dropout")->place.text() +
                                           ") has no effect: trl.disable_dropout");
    return judge_adapter(reader, config, node->place.text());
  }
  if (node != nullptr)
    refuse_lacking(reader, "adapter", "adapter " + node->text, *node, "set adapter: lora");
  else if (config.lora_model_dir)
    reader.refuse(14, {.what = "lora_model_dir has no adapter to go with",
                       .found = *config.lora_model_dir,
                       .where = reader.section().find("lora_model_dir")->place.text(),
                       .remedy = "set adapter: lora"});
  QuantisedBase whole;
  const Keys bits = quantisation_keys(whole);
  say_idle(reader, bits);
  apply_idle(reader, "bnb_config_kwargs", bits.front().idle_because());
  model::LoraConfig unused;
  const Keys rows = adapter_keys(unused, false);
  say_idle(reader, rows);
  apply_idle(reader, "lora_target_linear", rows.front().idle_because());
  for (const RecognisedKey& lacking : each_key(lacking_adapter_keys()))
    apply_idle(reader, lacking.key, rows.front().idle_because());
}

}  // namespace rlalgo::config::detail
