// What a configuration says of the estimates of a run (assembly/run_overview.hpp), and what is told before its first step.
#pragma once

#include <string>

#include <rlalgo/assembly/overview.hpp>
#include <rlalgo/assembly/run_overview.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/device.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/supported.hpp>
#include <rlalgo/config/validate.hpp>

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
      return master + 4.0;
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
          .checkpoints_away = config.activation_offloading == "disk" ||
                              (config.activation_offloading == "host" && !device_of(config).is_cpu()),
          .draws_here = !config.trl.generates_elsewhere(),
          .compares = is_preference(config) ? needs_reference(config) : config.beta != 0.0,
          .measurable = !config.trl.rollout_func && !config.trl.has_turns() && !config.trl.agents};
}

// Tokens at most of a completion.
[[nodiscard]] inline std::int64_t completion_length(const RunConfig& config) {
  const TrlConfig& t = config.trl;
  return t.has_turns() || t.rollout_func ? t.max_completion_length : t.max_new_tokens.value_or(t.max_completion_length);
}

// What is told before the first step; true: a dry run ends here.
[[nodiscard]] inline bool plans(assembly::Overview& overview, const RunConfig& config, model::Decoder& decoder,
                                bool copied, const OtherTask* task, const TrainMessages& messages) {
  if (evaluates(task)) return false;
  const assembly::EstimateConfig estimates = estimates_of(config);
  if (messages.planned) assembly::add_model(overview, estimates, decoder, copied);
  if (task != nullptr) assembly::measure(overview, estimates, decoder);
  if (messages.planned) messages.planned(overview);
  return task != nullptr;
}

}  // namespace rlalgo::config::detail
