#include <rlalgo/inference/engine_config.hpp>

#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using inference::CacheElement;
using inference::EngineConfig;

TEST_CASE("an engine's device and cache follow the weights, unless they are chosen") {
  model::DecoderWeights weights;
  weights.embedding = tensor::zeros({2, 2}, at::TensorOptions().dtype(at::kBFloat16).device(at::kMeta));
  const EngineConfig followed = EngineConfig{.max_slots = 3}.for_weights(weights);
  CHECK(followed.max_slots == 3);
  CHECK(followed.device == at::Device(at::kMeta));
  CHECK(followed.cache_element == CacheElement::bfloat16);  // whatever this CPU attends to
  const EngineConfig chosen =
      EngineConfig{.cache_element = CacheElement::float32, .device = at::Device(at::kCPU)}.for_weights(weights);
  CHECK(chosen.device == at::Device(at::kCPU));
  // A GPU takes more tokens of prompts at a time; what is chosen stays.
  CHECK(followed.prefill_rows == 2048);
  CHECK(chosen.prefill_rows == 256);
  CHECK(EngineConfig{.prefill_rows = 7}.for_weights(weights).prefill_rows == 7);
  CHECK(chosen.cache_element == CacheElement::float32);
}
