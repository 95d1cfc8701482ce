// What keys and values of running sequences are stored as, by the weights that compute them.
//
// bfloat16 halves what attention reads for a token and doubles the positions that fit into the memory; it is what a model in bfloat16 computes
// its keys and values in anyway (vLLM's kv_cache_dtype "auto", and transformers'). Then queries and the weights of softmax are bfloat16, too, in
// their products with keys and values; scores, their softmax and sums are float32.
//
// float8 (e4m3 of scale 1, as vLLM's kv_cache_dtype fp8 without scales in the checkpoint) halves it once more, on a device alone: each key and
// value is rounded to the nearest of them, at most ±448, when it is written, and is made bfloat16 or float32 when it is read.
//
// Errors: [rlalgo.inference.22] no element of keys and values has that name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <c10/core/ScalarType.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/cpu/best_kernels.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/model/weights.hpp>

namespace rlalgo::inference {

// Whether this CPU's kernels attend to bfloat16.
[[nodiscard]] inline bool attends_to_bfloat16() { return cpu::best_kernels().attention_bf16 != nullptr; }

// bfloat16 where the CPU's kernels attend to it, else float32.
[[nodiscard]] inline CacheElement smallest_cache_element() {
  return attends_to_bfloat16() ? CacheElement::bfloat16 : CacheElement::float32;
}

// That for weights in bfloat16, float32 for others. Devices other than the CPU attend to what their weights are.
[[nodiscard]] inline CacheElement cache_element_for(const model::DecoderWeights& weights) {
  if (weights.embedding.scalar_type() != at::kBFloat16) return CacheElement::float32;
  return weights.embedding.device().is_cpu() ? smallest_cache_element() : CacheElement::bfloat16;
}

// The one of vLLM's name (--kv-cache-dtype); nothing: as the weights ask for. `where` it was asked for.
[[nodiscard]] inline std::optional<CacheElement> cache_element_named(std::string_view name, std::string_view where) {
  if (name == "auto") return std::nullopt;
  if (name == "fp8" || name == "fp8_e4m3") return CacheElement::float8;
  core::raise_usage("inference", 22,
                    {.what = "keys and values are not kept so",
                     .found = "'" + std::string(name) + "'",
                     .expected = "auto (as the weights are), fp8 or fp8_e4m3 (the same)",
                     .where = std::string(where)});
}

}  // namespace rlalgo::inference
