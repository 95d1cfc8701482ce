// How much of the memory of a device other than the CPU generation takes, and how much of that is left for keys and values.
//
//   share = fraction · total  =  weights + copies + passes + keys and values
//
// The fraction is vLLM's gpu_memory_utilization: of all of the device's memory, and what passes read counts, even where a trainer reads it, too. Passes
// are an estimate from above: activations of the rows of one pass, its logits, keys and values that attention gathers with its scores, and what layers with
// linear attention carry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/attention_pieces.hpp>
#include <rlalgo/inference/cache_element.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/merged_adapter.hpp>
#include <rlalgo/inference/quantised_copies.hpp>
#include <rlalgo/inference/quantization.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/device.hpp>

namespace rlalgo::inference {

struct MemoryShare {
  double total = 0.0;     // bytes of the device; 0: the CPU, or the device does not say
  double fraction = 0.0;  // of it
  double weights = 0.0, copies = 0.0, passes = 0.0;
  std::size_t page_bytes = 0;

  [[nodiscard]] double share() const { return fraction * total; }
  // Of the share; negative where that is too small.
  [[nodiscard]] double left() const { return share() - weights - copies - passes; }
  [[nodiscard]] double page_memory(std::int64_t tokens) const {
    return static_cast<double>(KvCache::pages_for(tokens) + 1) * static_cast<double>(page_bytes);
  }
  [[nodiscard]] std::size_t pages() const {
    return left() <= 0.0 ? 0 : static_cast<std::size_t>(left() / static_cast<double>(page_bytes));
  }
  [[nodiscard]] std::int64_t tokens() const { return static_cast<std::int64_t>(pages()) * cpu::page_positions; }
};

// Of all tensors that a pass reads, adapters among them; of what is in bits what that takes.
[[nodiscard]] inline double weight_bytes(const model::DecoderConfig& config, const model::DecoderWeights& weights) {
  double out = 0.0;
  const auto add = [&out](const tensor::Tensor& value) {
    if (value.defined() && !model::is_stand_in(value)) out += static_cast<double>(value.nbytes());
  };
  model::visit_weights(config, weights,
                       [&](const std::string&, const tensor::Tensor& value, const auto&, auto) { add(value); });
  model::visit_maps(config, weights, [&](const std::string&, const model::Linear& map, auto, bool) {
    if (map.quantised) out += static_cast<double>(map.quantised->bytes());
  });
  model::visit_loras(config, weights, [&](const std::string&, const model::Lora& lora, const tensor::Tensor&) {
    for (const tensor::Tensor* const part : {&lora.a, &lora.b, &lora.magnitude}) add(*part);
  });
  return out;
}

// Of copies that an engine on a device makes of these weights: in 8 bits, or with the adapter.
[[nodiscard]] inline std::size_t copied_bytes(const model::DecoderWeights& weights, const EngineConfig& engine) {
  if (engine.quantization != Quantization::none) return quantised_bytes(engine.quantization, weights);
  return engine.merge_adapter ? merged_adapter_bytes(weights) : 0;
}

namespace detail {

// Whether some attention keeps its scores: rows that decode without decode_attention, prompts without flash_attention.
[[nodiscard]] inline bool keeps_scores(const model::DecoderConfig& config, const model::DecoderWeights& weights,
                                       const EngineConfig& settings) {
  const tensor::OwnKernels& own = tensor::own_kernels();
  if (own.table == nullptr || !own.has_attention() || !cuda::in_use(cuda::Kernel::decode_attention) ||
      settings.device->type() != own.device || settings.cache_element != CacheElement::bfloat16 ||
      weights.embedding.scalar_type() != at::kBFloat16 || config.head_dim % 8 != 0 || config.head_dim > 256)
    return true;
  for (std::int64_t l = 0; l < config.layers; ++l)
    if (config.spec(l).score_cap > 0.0) return true;
  return false;
}

}  // namespace detail

// Of an engine with these weights on their device, for sequences of `longest` tokens at most.
[[nodiscard]] inline MemoryShare memory_share(const model::DecoderConfig& config, const model::DecoderWeights& weights,
                                              const EngineConfig& engine, double fraction, std::int64_t longest) {
  const EngineConfig settings = engine.for_weights(weights);
  MemoryShare out{.fraction = fraction,
                  .weights = weight_bytes(config, weights),
                  .copies = static_cast<double>(copied_bytes(weights, engine)),
                  .page_bytes = KvCache(config, *settings.cache_element).page_bytes()};
  if (!settings.device->is_cpu()) out.total = static_cast<double>(tensor::device_memory(*settings.device).total);
  std::int64_t width = 0;
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const model::ExpertSpec& experts = config.spec(l).experts;
    width = std::max(
        width, experts.count > 0 ? experts.chosen * experts.width + experts.shared_width : config.intermediate_size);
  }
  const auto element = static_cast<double>(weights.embedding.element_size());
  const std::int64_t heads = config.heads + 2 * config.kv_heads;
  const std::int64_t prompts = std::min(settings.prefill_rows, settings.max_slots * longest);
  const auto numbers = static_cast<double>((settings.max_slots + prompts) *
                                           (6 * config.hidden_size + 2 * heads * config.head_dim + 3 * width));
  const auto logits = static_cast<double>(settings.max_slots * config.vocab_size);
  // What attention gathers, and keeps where operators compute it (attention_pieces.hpp): of all that decode, or of one prompt.
  constexpr AttentionPieces pieces;
  const std::int64_t row = longest * 2 * config.kv_heads * config.head_dim;
  const auto gathered = static_cast<double>(std::max(row, std::min(pieces.gathered, settings.max_slots * row)));
  const std::int64_t heads_of_row = longest * config.heads;
  const std::int64_t rows = std::max(settings.max_slots, std::min(settings.prefill_rows, longest));
  const auto scores = detail::keeps_scores(config, weights, settings)
                          ? static_cast<double>(std::max(heads_of_row, std::min(pieces.scores, rows * heads_of_row)))
                          : 0.0;
  const auto carried = static_cast<double>(config.carried()) * 4.0;  // of layers with a state
  out.passes =
      numbers * element + gathered * (element + 12.0) + logits * (element + 4.0) + 3.0 * scores * 4.0 +
      (carried > 0.0 ? carried * static_cast<double>(settings.max_slots) + static_cast<double>(settings.saved_bytes)
                     : 0.0);
  return out;
}

}  // namespace rlalgo::inference
