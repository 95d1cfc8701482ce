// How a run that draws its completions divides the memory of its device between generation and training: what generation may keep of keys
// and values, whether it reads copies of the weights with the adapter multiplied in, and the line of the plan about it.
//
// Both are given back while the trainer trains and taken again, unless the run is asynchronous. On the CPU nothing is limited
// and nothing merged.
//
// An adapter is merged where the copies leave room for as many of the longest completions as are drawn at a time: in the share where there is
// one, in nine tenths of the device else.
//
// Errors: [rlalgo.assembly.2] the share holds not even one of the longest completions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include <rlalgo/assembly/overview.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/memory_share.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::assembly {

struct GenerationMemoryConfig {
  double fraction = 0.0;             // of the device's memory for generation; 0: what completions need
  std::string key = "the fraction";  // that says it, for messages; and where
  std::string where = {};
  std::int64_t longest = 1;      // tokens at most of a prompt and its completion
  std::int64_t completions = 1;  // drawn at a time
  inference::Quantization quantization = inference::Quantization::none;  // EngineConfig's, and of keys and values
  std::optional<inference::CacheElement> cache_element = {};
  bool asynchronous =
      false;  // completions are made while the trainer trains, from copies of what is trained (or by a server in this process)
};

struct GenerationMemory {
  std::int64_t max_slots = 0;   // EngineConfig's; 0: its own
  std::size_t cache_bytes = 0;  // EngineConfig's; 0: what completions need
  bool merge_adapter = false;   // EngineConfig's
  // Bytes: of weights in 8 bits or with the adapter, of passes, of keys and values at most.
  double copies = 0.0, passes = 0.0, needed = 0.0;
  std::string copied = "copies with the adapter";  // what copies are
  std::string line = {};                           // a line of the plan; empty on the CPU
};

namespace detail {

[[nodiscard]] inline std::string share_text(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", fraction);
  return text;
}

[[nodiscard]] inline double trained_bytes(const model::Decoder& decoder) {
  double out = 0.0;
  const auto add = [&out](const tensor::Tensor& value) {
    if (value.defined() && value.requires_grad()) out += static_cast<double>(value.nbytes());
  };
  const model::DecoderWeights& weights = decoder.weights();
  model::visit_weights(decoder.config(), weights,
                       [&](const std::string&, const tensor::Tensor& value, const auto&, auto) { add(value); });
  model::visit_loras(decoder.config(), weights,
                     [&](const std::string&, const model::Lora& lora, const tensor::Tensor&) {
                       for (const tensor::Tensor* const part : {&lora.a, &lora.b, &lora.magnitude}) add(*part);
                     });
  return out;
}

// The smallest fraction in steps of 0.01.
[[nodiscard]] inline double fraction_for(const inference::MemoryShare& share, double pages) {
  return std::ceil((share.weights + share.copies + share.passes + pages) / share.total * 100.0) / 100.0;
}

[[noreturn]] inline void refuse_share(const GenerationMemoryConfig& config, const inference::MemoryShare& share,
                                      double one) {
  const double enough = fraction_for(share, one);
  core::raise_usage(
      "assembly", 2,
      {.what = "the share of the device's memory that generation may take does not hold the longest completion",
       .found = share_text(share.fraction) + " of " + bytes_text(share.total) + " is " + bytes_text(share.share()) +
                ": weights " + bytes_text(share.weights) +
                (share.copies > 0.0 ? ", copies in 8 bits " + bytes_text(share.copies) : "") + ", passes " +
                bytes_text(share.passes) + ", " + bytes_text(std::max(0.0, share.left())) + " for keys and values",
       .expected = bytes_text(one) + " for keys and values of " + count_text(config.longest) + " tokens",
       .where = config.where,
       .remedy =
           enough <= 1.0
               ? "set " + config.key + " to " + share_text(enough) + " or more, or make prompts and completions shorter"
               : std::string("make prompts and completions shorter: all of the device would not hold one")});
}

[[nodiscard]] inline std::string line_of(const GenerationMemoryConfig& config, const inference::MemoryShare& share,
                                         const GenerationMemory& memory, std::size_t unmerged) {
  const std::string& kind = memory.copied;
  std::string out;
  if (memory.cache_bytes > 0) {
    const auto at_a_time =
        static_cast<std::int64_t>(static_cast<double>(memory.cache_bytes) / share.page_memory(config.longest));
    out = share_text(share.fraction) + " of " + bytes_text(share.total) + " for generation (" + config.key +
          "): weights " + bytes_text(share.weights) +
          (memory.copies > 0 ? ", " + kind + " " + bytes_text(memory.copies) : "") + ", passes " +
          bytes_text(share.passes) + ", keys and values " + bytes_text(static_cast<double>(memory.cache_bytes)) + ": " +
          count_text(share.tokens()) + " tokens, " + count_text(std::min(at_a_time, config.completions)) +
          " of the longest completions at a time";
  } else {
    out = "keys and values as completions need them, at most " + bytes_text(memory.needed) +
          (memory.copies > 0 ? "; " + kind + " " + bytes_text(memory.copies) : "");
  }
  if (!memory.merge_adapter && unmerged > 0)
    out +=
        "; the adapter stays apart: copies of " + bytes_text(static_cast<double>(unmerged)) + " would not leave room";
  return out + (config.asynchronous ? "" : "; given back while training");
}

}  // namespace detail

[[nodiscard]] inline GenerationMemory generation_memory(const model::Decoder& decoder, GenerationMemoryConfig config) {
  if (decoder.device().is_cpu()) return {};
  // As many as the largest graph of a pass has rows; a pass reads the weights once for all of them.
  constexpr std::int64_t most_slots = 256;
  inference::EngineConfig engine{.cache_element = config.cache_element, .quantization = config.quantization};
  engine.max_slots = config.completions = std::clamp<std::int64_t>(config.completions, 1, most_slots);
  config.longest = std::min(config.longest, decoder.config().context_length());
  inference::MemoryShare share =
      inference::memory_share(decoder.config(), decoder.weights(), engine, config.fraction, config.longest);
  const double one = share.page_memory(config.longest), all = static_cast<double>(config.completions) * one;
  GenerationMemory out{.max_slots = config.completions, .passes = share.passes, .needed = all};
  // Two copies of what is trained, or as many as requests are under way with.
  if (config.asynchronous) share.weights += 2.0 * detail::trained_bytes(decoder);
  // Copies in 8 bits are there in any case, and take no more with the adapter in them.
  const bool quantises = config.quantization != inference::Quantization::none;
  const std::size_t copies = quantises ? 0 : inference::merged_adapter_bytes(decoder.weights());
  if (quantises)
    out.copied = "copies in 8 bits";
  else
    share.copies = static_cast<double>(copies);
  const bool limited = config.fraction > 0.0 && share.total > 0.0;
  const bool has_room =
      share.total == 0.0 ||
      (limited ? share.left() >= all : share.weights + share.copies + share.passes + all <= 0.9 * share.total);
  out.merge_adapter = quantises ? inference::merged_adapter_bytes(decoder.weights()) > 0 : copies > 0 && has_room;
  if (!out.merge_adapter && !quantises) share.copies = 0.0;
  out.copies = share.copies;
  if (limited) {
    if (share.left() < one) detail::refuse_share(config, share, one);
    out.cache_bytes = share.pages() * share.page_bytes;
    out.needed = static_cast<double>(out.cache_bytes);
  }
  out.line = detail::line_of(config, share, out, copies);
  return out;
}

}  // namespace rlalgo::assembly
