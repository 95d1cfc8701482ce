// How an engine is set up: how much at a time, where, and as what numbers are kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include <c10/core/Device.h>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/cache_element.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/quantization.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/inference/scheduler_config.hpp>
#include <rlalgo/model/weights.hpp>

namespace rlalgo::inference {

// Prompt tokens that a pass takes where nobody says. A GPU's products are as quick as memory allows up to some 300 rows, and its launches
// cost the same for any number.
[[nodiscard]] inline std::int64_t prefill_rows_of(at::Device device) {
  return device.is_cpu() ? SchedulerConfig{}.prefill_rows : 2048;
}

struct EngineConfig {
  // As scheduler_config.hpp has them: completions decoded at the same time; prompt tokens added to one pass, 0 = as the device asks for
  // (prefill_rows_of()); prompt tokens at most for which those that decode are held up, 0 = never.
  std::int64_t max_slots = SchedulerConfig{}.max_slots;
  std::int64_t prefill_rows = 0;
  std::int64_t prefill_ahead = SchedulerConfig{}.prefill_ahead;
  int threads = 0;  // at most so many, as the size of the work asks for; 0 = those of LibTorch that have a processor
  std::size_t cache_bytes =
      0;  // keys and values of running requests and kept prefixes; 0 = SchedulerConfig's (memory_share.hpp: on a device)
  std::size_t saved_bytes = SchedulerConfig{}.saved_bytes;  // of states behind pages, where the model carries any
  bool keep_prefixes = false;  // reuse what an earlier call computed, until the owner says weights_changed()
  // Of keys and values; nothing = as the weights that an engine is made with ask for (cache_element.hpp), else float32.
  std::optional<CacheElement> cache_element = {};
  Quantization quantization = Quantization::none;  // of the weights that are generated with (quantization.hpp)
  // Multiplies by copies of weights in bfloat16, in the order that kernels read best, where the CPU's have one (packs_bfloat16() of cpu_kernels.hpp):
  // for as much memory as the weights take. Log-probs differ in rounding.
  bool pack_weights = false;
  // On another device than the CPU: generates with copies of the maps that an adapter changes, the adapter multiplied in
  // (merged_adapter.hpp), made when the weights have changed and given back with the rest of the engine's memory. Log-probs differ in rounding.
  bool merge_adapter = false;
  // On another device than the CPU: the numbers of a completion do not depend on what is computed with it, on the order of arrival or on
  // what is found again in the prefix cache, as they never do on the CPU. Every product of a pass has a fixed number of rows, and each row
  // attends by itself. Not for models with experts or linear attention.
  bool invariant = false;
  bool routed_experts = false;  // completions say which experts every token passed (data::Completion); on the CPU

  // Decodes completions of a prompt (text_streams.hpp), where SamplingConfig::stop_strings end them; none: they cannot.
  std::function<std::function<TextStream()>(std::span<const data::TokenId> prompt, const SamplingConfig& sampling)>
      texts = nullptr;
  // Where weights, keys and values lie; nothing = where the weights lie that an engine is made with, else the CPU.
  std::optional<at::Device> device = {};

  // Whether what draws is another policy than the weights are, by more than rounding to bfloat16 makes it.
  [[nodiscard]] bool quantizes() const noexcept {
    return quantization != Quantization::none || cache_element == CacheElement::float8;
  }

  // With what these weights ask for and was not chosen.
  [[nodiscard]] EngineConfig for_weights(const model::DecoderWeights& weights) const {
    EngineConfig out = *this;
    if (!out.device) out.device = weights.embedding.device();
    if (out.prefill_rows == 0) out.prefill_rows = prefill_rows_of(*out.device);
    if (!out.cache_element)
      out.cache_element = quantization == Quantization::none || !out.device->is_cpu() ? cache_element_for(weights)
                                                                                      : smallest_cache_element();
    return out;
  }
};

}  // namespace rlalgo::inference
