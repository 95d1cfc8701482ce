// What a configuration says of the estimates of a run (assembly/run_overview.hpp), and what is printed before its first step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <rlalgo/assembly/generation_memory.hpp>
#include <rlalgo/assembly/memory_estimate.hpp>
#include <rlalgo/assembly/overview.hpp>
#include <rlalgo/assembly/run_overview.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/device.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/supported.hpp>
#include <rlalgo/config/validate.hpp>
#include <rlalgo/sampler/geometry.hpp>

namespace rlalgo::config::detail {

// Bytes of the optimizer for a parameter of its own.
[[nodiscard]] inline double optimizer_bytes(const RunConfig& config) {
  const double master = config.bfloat16 ? 4.0 : 0.0;
  switch (optimizer_named(config.optimizer).rule) {
    case UpdateRule::lion:
      return master + 4.0;
    case UpdateRule::adafactor:
      return master;
    case UpdateRule::muon:
    case UpdateRule::adagrad:
      return master + 4.0;
    case UpdateRule::sgd:
      return master + (buffers_momentum(config) ? 4.0 : 0.0);
    case UpdateRule::rmsprop:
      return master + 4.0 + (buffers_momentum(config) ? 4.0 : 0.0) + (config.rmsprop.centered ? 4.0 : 0.0);
    case UpdateRule::adamw:
      break;
  }
  return master + (moments_of(config.optimizer) == Moments::blockwise_8bit ? 2.1 : 8.0);
}

[[nodiscard]] inline assembly::EstimateConfig estimates_of(const RunConfig& config) {
  const char* const why = !config.was_set("bf16") && !config.was_set("bfloat16") ? " (bf16 is not set)"
                          : config.keys.is_object() && config.keys.contains("bf16") && config.keys["bf16"] == "auto"
                              ? config.bfloat16 ? " (bf16: auto, and the device multiplies it)"
                                                : " (bf16: auto, and this CPU does not multiply bfloat16)"
                          : config.bfloat16 ? " (bf16: true)"
                                            : " (bf16: false)";
  return {.dtype = (config.bfloat16 ? "bfloat16" : "float32") + std::string(why),
          .optimizer_bytes = optimizer_bytes(config),
          .checkpointing = config.gradient_checkpointing,
          .checkpoints_away = config.activation_offloading == "disk" ? "in a file"
                              : config.activation_offloading == "host" && !device_of(config).is_cpu()
                                  ? "in the memory of the host"
                                  : "",
          .draws_here = !config.trl.generates_elsewhere(),
          .asynchronous = config.trl.is_asynchronous() || config.trl.serves(),
          .compares = is_preference(config) ? needs_reference(config) : config.beta != 0.0,
          .measurable = !config.trl.rollout_func && !config.trl.has_turns() && !config.trl.agents};
}

// How weights, gradients and states lie on these ranks.
inline void divide(assembly::EstimateConfig& estimates, const RunConfig& config, std::int64_t ranks) {
  if (ranks == 1) return;
  const ShardingConfig& s = config.sharding;
  const std::int64_t groups = ranks / config.context_parallel_size;
  estimates.row_ranks = config.context_parallel_size;
  estimates.expert_ranks = config.expert_parallel_size;
  estimates.stage = s.stage;
  if (s.on())
    estimates.shard_ranks = config.context_parallel_size * s.shard_size.value_or(groups / s.replicate_size.value_or(1));
}

// Tokens at most of a completion.
[[nodiscard]] inline std::int64_t completion_length(const RunConfig& config) {
  const TrlConfig& t = config.trl;
  return t.has_turns() || t.rollout_func ? t.max_completion_length : t.max_new_tokens.value_or(t.max_completion_length);
}

// What generation of this process may take of its device. [rlalgo.assembly.2]
[[nodiscard]] inline assembly::GenerationMemory generation_memory_of(const RunConfig& config,
                                                                     const model::Decoder& decoder,
                                                                     const assembly::Overview& overview,
                                                                     const sampler::Geometry& geometry) {
  if (config.trl.generates_elsewhere()) return {};
  const std::int64_t ranks = std::max(overview.ranks, config.ranks),
                     groups = std::max<std::int64_t>(1, ranks / config.context_parallel_size);
  return assembly::generation_memory(
      decoder,
      {.fraction = config.trl.vllm_gpu_memory_utilization.value_or(0.0),
       .key = "trl.vllm_gpu_memory_utilization",
       .where = config.place("trl.vllm_gpu_memory_utilization"),
       .longest = overview.longest + std::max<std::int64_t>(1, overview.completion_length),
       .completions = (geometry.completions() + groups - 1) / groups,
       .quantization = inference::quantization_named(config.trl.generation_quantization, "trl.generation_quantization"),
       .cache_element =
           inference::cache_element_named(config.trl.generation_kv_cache_dtype, "trl.generation_kv_cache_dtype"),
       .asynchronous = config.trl.is_asynchronous() || config.trl.serves()});
}

// What is printed before the first step; true: a dry run ends here.
[[nodiscard]] inline bool plans(assembly::Overview& overview, const RunConfig& config, model::Decoder& decoder,
                                bool copied, const OtherTask* task, const TrainMessages& messages,
                                const assembly::GenerationMemory& generation = {}) {
  if (evaluates(task)) return false;
  assembly::EstimateConfig estimates = estimates_of(config);
  estimates.generation = generation;
  overview.ranks = std::max(overview.ranks, config.ranks);
  divide(estimates, config, overview.ranks);
  if (overview.ranks > 1 && device_of(config).is_cpu()) overview.ranks_here = ranks_here(overview.ranks);
  if (messages.planned) assembly::add_model(overview, estimates, decoder, copied);
  if (task != nullptr) assembly::measure(overview, estimates, decoder);
  if (messages.planned) messages.planned(overview);
  return task != nullptr;
}

}  // namespace rlalgo::config::detail
