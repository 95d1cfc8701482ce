// What keys and values of running sequences are stored as, by the weights that compute them.
//
// bfloat16 halves what attention reads for a token and doubles the positions that fit into the memory; it is what a model in bfloat16 computes
// its keys and values in anyway (vLLM's kv_cache_dtype "auto", and transformers'). Then queries and the weights of softmax are bfloat16, too, in
// their products with keys and values; scores, their softmax and sums are float32.
#pragma once

#include <c10/core/ScalarType.h>

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

}  // namespace rlalgo::inference
