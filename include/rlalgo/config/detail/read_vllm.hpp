// The `trl.vllm_…` keys: completions made by a server, or beside training.
#pragma once

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

// The key that constrains the texts of completions; "": none.
inline std::string constraint_of(const Reader& reader, const TrlConfig& trl) {
  if (trl.vllm_structured_outputs_regex) return "trl.vllm_structured_outputs_regex";
  const Node* kwargs = reader.section().find("generation_kwargs");
  if (kwargs == nullptr || kwargs->kind != Kind::mapping) return "";
  for (const char* key : {"structured_outputs", "guided_regex", "guided_json", "guided_choice", "guided_grammar",
                          "guided_decoding", "response_format"})
    if (const Node* value = kwargs->find(key); value != nullptr && value->kind != Kind::null)
      return std::string("trl.generation_kwargs.") + key;
  return "";
}

// vllm_mode: colocate is what this program does by itself: generation with the trainer's own weights in this process. With agents
// of a Gym it is a server in this process, which they ask: host and port are where it listens.
// What corrects for a generator whose log-probs are not the trainer's: a server's, or those of older or quantized weights. Of
// generation beside training, of completions of this process that are trained on again and of its quantized weights, axolotl's defaults hold.
// Texts that an expression or a schema constrains are no draws of the policy: a correction would take nearly all of them away, so it
// is off unless it is asked for.
inline void read_correction(Reader& reader, TrlConfig& trl) {
  const std::string constraint = constraint_of(reader, trl);
  const auto asked = [&](const char* key) { return reader.given(std::string("vllm_importance_sampling_") + key); };
  const bool chosen = asked("correction") || asked("mode") || asked("clip_min") || asked("clip_max") || asked("cap");
  if (!constraint.empty() && trl.generates_elsewhere() && !chosen) {
    trl.vllm_importance_sampling_correction = false;
    reader.findings().warnings.push_back(
        constraint +
        ": completions are drawn from constrained texts, whose log-probs are not the policy's, so "
        "vllm_importance_sampling_correction is false here (true, if you set it, takes nearly all of them "
        "for drawn by another policy)");
  }
  const bool older = trl.generates_beside() || trl.quantizes() || !(trl.generates_elsewhere() || trl.serves());
  if (older) trl.vllm_importance_sampling_mode = "token_truncate";
  reader.read("vllm_importance_sampling_correction", trl.vllm_importance_sampling_correction);
  reader.read_choice("vllm_importance_sampling_mode", trl.vllm_importance_sampling_mode,
                     {"token_truncate", "token_mask", "sequence_truncate", "sequence_mask"});
  reader.read("vllm_importance_sampling_clip_min", trl.vllm_importance_sampling_clip_min);
  if (const Node* node = reader.section().find("vllm_importance_sampling_clip_max");
      node != nullptr && node->kind == Kind::null)
    trl.vllm_importance_sampling_clip_max.reset();
  reader.read("vllm_importance_sampling_clip_max", trl.vllm_importance_sampling_clip_max);
  reader.read("vllm_importance_sampling_cap", trl.vllm_importance_sampling_clip_max);  // its old name wins, as in TRL
  const auto cap = trl.vllm_importance_sampling_clip_max;
  if (older && !reader.given("vllm_importance_sampling_clip_min") && cap && *cap > 1 &&
      trl.vllm_importance_sampling_mode.ends_with("truncate"))
    trl.vllm_importance_sampling_clip_min = 1.0 / *cap;
}

inline void read_vllm(Reader& reader, TrlConfig& trl) {
  reader.read("use_vllm", trl.use_vllm);
  if (trl.use_vllm) reader.read_choice("vllm_mode", trl.vllm_mode, {"server", "colocate"});
  if (!trl.generates_elsewhere())
    read_if_there(reader, "generation_quantization", trl.generation_quantization,
                  std::vector<std::string>{"none", "int8"});
  if (trl.serves()) {
    if (reader.read("vllm_server_host", trl.vllm_server_host);
        trl.vllm_server_host.empty() || !reader.given("vllm_server_host"))
      trl.vllm_server_host = "127.0.0.1";
    trl.vllm_server_port = 0;
    reader.read("vllm_server_port", trl.vllm_server_port);
    read_correction(reader, trl);
    return apply_idle(reader, idle_serving_keys());
  }
  if (!trl.generates_elsewhere()) {
    if (const Node* mode = reader.take("vllm_mode"); mode != nullptr)
      reader.findings().warnings.push_back(reader.prefix() + "vllm_mode (" + mode->place.text() +
                                           ") has no effect: completions are generated in this process");
    if (trl.may_correct()) read_correction(reader, trl);
    return apply_idle(reader, idle_vllm_keys());
  }
  reader.read("vllm_server_host", trl.vllm_server_host);
  reader.read("vllm_server_port", trl.vllm_server_port);
  reader.read("vllm_server_base_url", trl.vllm_server_base_url);
  reader.read("vllm_group_port", trl.vllm_group_port);
  reader.read("vllm_server_timeout", trl.vllm_server_timeout);
  reader.read("request_timeout", trl.request_timeout);
  reader.read("vllm_lora_sync", trl.vllm_lora_sync);
  reader.read("vllm_guided_decoding_regex", trl.vllm_structured_outputs_regex);  // its old name
  reader.read("vllm_structured_outputs_regex", trl.vllm_structured_outputs_regex);
  read_correction(reader, trl);
  apply_idle(reader, idle_server_keys());
}

}  // namespace rlalgo::config::detail
