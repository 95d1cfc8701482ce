// From a configuration to its language model (assembly/language_model.hpp), and to how it lies on the ranks.
//
// Errors: those of assembly/language_model.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/sharding.hpp>
#include <rlalgo/config/device.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config {

[[nodiscard]] inline assembly::NamedModel base_model_of(const RunConfig& c) {
  return {c.base_model, c.place("base_model"), c.model_revision.value_or("")};
}

// The adapter that training goes on from.
[[nodiscard]] inline std::optional<assembly::NamedModel> adapter_of(const RunConfig& c) {
  if (!c.lora_model_dir) return std::nullopt;
  return assembly::NamedModel{*c.lora_model_dir, c.place("lora_model_dir")};
}

[[nodiscard]] inline assembly::LanguageModelConfig language_model_of(const RunConfig& c) {
  assembly::LanguageModelConfig out{
      .model = base_model_of(c),
      .tokenizer = std::nullopt,
      .adapter = adapter_of(c),
      .lora = c.lora,
      .unfrozen_parameters = c.unfrozen_parameters,
      .quantisation = c.quantisation(),
      .bfloat16 = c.bfloat16,
      .gradient_checkpointing = c.gradient_checkpointing,
      .checkpoint_memory = c.activation_offloading == "host"   ? model::CheckpointMemory::host
                           : c.activation_offloading == "disk" ? model::CheckpointMemory::disk
                                                               : model::CheckpointMemory::device,
      .sharded = c.divides_model(),
      .expert_size = c.expert_parallel_size,
      .expert_size_where = c.place("expert_parallel_size"),
      .device = device_of(c),
      .seed = c.seed,
      .chat_template = c.chat_template,
      .chat_template_jinja = c.chat_template_jinja,
      .tokens = c.token_changes(),
      .tokens_where = c.file,
      .save_as_computed = c.float32,
      .started = c.outside.time};
  if (c.tokenizer_config) out.tokenizer = {*c.tokenizer_config, c.place("tokenizer_config")};
  for (const char* key : {"tokens", "special_tokens.bos_token", "special_tokens.eos_token", "special_tokens.pad_token",
                          "special_tokens.unk_token", "special_tokens.additional_special_tokens"})
    if (c.was_set(key)) out.tokens_where = c.place(key);
  return out;
}

[[nodiscard]] inline assembly::ModelPlaces find_model(const RunConfig& c) {
  const assembly::LanguageModelConfig model = language_model_of(c);
  return assembly::find_model(model.model, model.tokenizer);
}

// All ranks together; null where every rank has everything.
[[nodiscard]] inline std::shared_ptr<assembly::Sharding> sharding_of(const RunConfig& c,
                                                                     const std::shared_ptr<distributed::World>& world,
                                                                     at::Device device = at::Device(at::kCPU)) {
  const ShardingConfig& s = c.sharding;
  if (!c.divides_model()) return nullptr;
  return assembly::Sharding::convene({.config = {.stage = static_cast<distributed::ShardStage>(s.stage),
                                                 .reshard_after_forward = s.reshard_after_forward},
                                      .shard_size = s.shard_size,
                                      .replicate_size = s.replicate_size,
                                      .shards = s.on(),
                                      .context_size = c.context_parallel_size,
                                      .expert_size = c.expert_parallel_size,
                                      .file_of_each = s.file_of_each},
                                     world, device);
}

}  // namespace rlalgo::config
