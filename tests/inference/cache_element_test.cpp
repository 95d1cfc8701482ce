#include <rlalgo/inference/cache_element.hpp>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/local_engine.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using inference::CacheElement;
using inference::EngineConfig;
using support::number_raised_by;

TEST_CASE(
    "keys and values are bfloat16 where the weights are and the CPU attends to it, unless something else is asked "
    "for") {
  const model::DecoderConfig config = reference::tiny();
  const model::DecoderWeights wide = reference::random_weights(config, 1);
  const model::DecoderWeights half = reference::random_weights(config, 1, at::kBFloat16);
  const CacheElement best = inference::attends_to_bfloat16() ? CacheElement::bfloat16 : CacheElement::float32;
  CHECK(inference::cache_element_for(wide) == CacheElement::float32);
  CHECK(inference::cache_element_for(half) == best);
  CHECK(EngineConfig{}.for_weights(half).cache_element == best);
  CHECK(EngineConfig{}.for_weights(wide).cache_element == CacheElement::float32);
  CHECK(EngineConfig{.cache_element = CacheElement::float32}.for_weights(half).cache_element == CacheElement::float32);
  const std::string kernels(cpu::best_kernels().name);
  CHECK(inference::attends_to_bfloat16() == (kernels == "amx_bf16" || kernels == "avx512_bf16"));
  CHECK(number_raised_by([&] {
          const inference::DecoderEngine engine(config, {.cache_element = CacheElement::bfloat16});
        }) == (inference::attends_to_bfloat16() ? "nothing" : "inference.7"));
}

TEST_CASE("elements of keys and values have vLLM's names") {
  CHECK(inference::cache_element_named("auto", "--kv-cache-dtype") == std::nullopt);
  for (const char* name : {"fp8", "fp8_e4m3"})
    CHECK(inference::cache_element_named(name, "--kv-cache-dtype") == CacheElement::float8);
  for (const char* name : {"", "fp8_e5m2", "FP8", "int8", "float16"})
    CHECK(number_raised_by([&] { (void)inference::cache_element_named(name, "--kv-cache-dtype"); }) == "inference.22");
}

TEST_CASE(
    "a completion's log-probs over bfloat16 keys and values are float32's to rounding, and no neighbour changes them") {
  const model::DecoderConfig config = reference::tiny("qwen3");
  const model::DecoderWeights weights = reference::random_weights(config, 5, at::kBFloat16);
  inference::SamplingConfig sampling;
  sampling.max_new_tokens = 50;
  std::vector<inference::Request> requests;
  for (int r = 0; r < 5; ++r) {
    requests.push_back({.prompt = std::vector<data::TokenId>(static_cast<std::size_t>(3 + 9 * r), 1)});
    for (std::size_t i = 0; i < requests.back().prompt.size(); ++i)
      requests.back().prompt[i] = static_cast<data::TokenId>((i * 29 + static_cast<std::size_t>(r)) % 101);
    requests.back().first_index = static_cast<std::uint64_t>(r);
  }
  inference::LocalEngine engine(config, weights, {.max_slots = 5, .prefill_rows = 16, .threads = 2});
  const auto together = engine.generate(requests, sampling, {});
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const auto alone = engine.generate(std::vector{requests[r]}, sampling, {})[0][0];
    CHECK(alone.ids == together[r][0].ids);
    CHECK(alone.log_probs == together[r][0].log_probs);
  }
  // The same tokens over float32 keys and values; a token of this model of large random weights differs by 0.2 at most.
  double apart = 0.0;
  inference::LocalEngine wide(config, weights, {.max_slots = 5, .threads = 1, .cache_element = CacheElement::float32});
  for (std::size_t r = 0; r < requests.size(); ++r) {
    inference::Request given = requests[r];
    given.given = {together[r][0].ids};
    const auto scored = wide.generate(std::vector{given}, sampling, {})[0][0];
    REQUIRE(scored.ids == together[r][0].ids);
    for (std::size_t n = 0; n < scored.ids.size(); ++n)
      apart += std::abs(static_cast<double>(scored.log_probs[n]) - together[r][0].log_probs[n]);
  }
  CHECK(apart / (5 * 50) < 0.05);
}
