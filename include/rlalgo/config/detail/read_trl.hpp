// The `trl:` section of online methods (config/trl_config.hpp).
#pragma once

#include <string>

#include <rlalgo/config/detail/read_generation_kwargs.hpp>
#include <rlalgo/config/detail/read_rows.hpp>
#include <rlalgo/config/trl_config.hpp>

namespace rlalgo::config::detail {

// The key that constrains the texts of completions; "": none.
inline std::string constraint_of(const Reader& reader) {
  for (const char* key : {"vllm_structured_outputs_regex", "vllm_guided_decoding_regex"})
    if (reader.given(key)) return std::string("trl.") + key;
  const Node* kwargs = reader.section().find("generation_kwargs");
  if (kwargs == nullptr || kwargs->kind != Kind::mapping) return "";
  for (const char* key : {"structured_outputs", "guided_regex", "guided_json", "guided_choice", "guided_grammar",
                          "guided_decoding", "response_format"})
    if (const Node* value = kwargs->find(key); value != nullptr && value->kind != Kind::null)
      return std::string("trl.generation_kwargs.") + key;
  return "";
}

// Of asynchronous generation, of completions of this process that are trained on again and of its quantized weights, the correction
// has axolotl's defaults. Texts that an expression or a schema constrains are no draws of the policy: a correction would take nearly all
// of them away, so it is off unless it is asked for.
inline void read_server(Reader& reader, TrlConfig& trl) {
  if (trl.serves()) {
    trl.vllm_server_host = "127.0.0.1";
    trl.vllm_server_port = 0;
  }
  const auto asked = [&](const char* key) { return reader.given(std::string("vllm_importance_sampling_") + key); };
  const bool chosen = asked("correction") || asked("mode") || asked("clip_min") || asked("clip_max") || asked("cap");
  const std::string constraint = trl.generates_elsewhere() && !chosen ? constraint_of(reader) : "";
  if (!constraint.empty()) {
    trl.vllm_importance_sampling_correction = false;
    reader.findings().warnings.push_back(
        constraint +
        ": completions are drawn from constrained texts, whose log-probs are not the policy's, so "
        "vllm_importance_sampling_correction is false here (true, if you set it, takes nearly all of them "
        "for drawn by another policy)");
  }
  const bool corrects = trl.may_correct();
  const bool older = trl.is_asynchronous() || trl.quantizes() || !(trl.generates_elsewhere() || trl.serves());
  if (corrects && older) trl.vllm_importance_sampling_mode = "token_truncate";
  auto& clip_max = trl.vllm_importance_sampling_clip_max;
  if (const Node* node = reader.section().find("vllm_importance_sampling_clip_max");
      corrects && node != nullptr && node->kind == Kind::null)
    clip_max.reset();
  read_rows(reader, server_keys(trl, corrects));
  if (trl.serves() && trl.vllm_server_host.empty()) trl.vllm_server_host = "127.0.0.1";
  if (corrects && older && !asked("clip_min") && clip_max && *clip_max > 1 &&
      trl.vllm_importance_sampling_mode.ends_with("truncate"))
    trl.vllm_importance_sampling_clip_min = 1.0 / *clip_max;
}

inline void read_trl(Reader& reader, TrlConfig& trl) {
  read_rows(reader, reward_keys(trl));
  read_rows(reader, geometry_keys(trl));
  read_rows(reader, asynchronous_keys(trl));
  const Keys generators = generator_keys(trl);
  read_rows(reader, generators);
  if (trl.use_vllm && !trl.generates_elsewhere() && !trl.serves())
    say_unused(reader, generators[1], "completions are generated in this process");
  read_server(reader, trl);
  read_rows(reader, sampling_keys(trl, false));
  GenerationKwargsReader(reader, trl).read();
  read_row(reader, template_key(trl));
  read_rows(reader, turn_keys(trl));
  if (trl.environment_factories.is_object()) reader.record("environment_factory", trl.environment_factories);
  read_rows(reader, loss_keys(trl));
  const Keys rows = trl_keys(trl);
  say_idle(reader, rows);
  for (const Key& row : rows)
    if (!row.losses.empty() && !among(trl.loss_type, row.losses))
      say_unused(reader, row, "it is of trl.loss_type: " + listed_words(row.losses));
  apply_lacking(reader, lacking_trl_keys());
  apply_idle(reader, idle_trl_keys());
}

}  // namespace rlalgo::config::detail
