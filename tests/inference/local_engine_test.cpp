#include <support/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/inference/local_engine.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using data::Completion;
using data::Finish;
using data::TokenId;
using inference::DrawKey;
using inference::EngineConfig;
using inference::LocalEngine;
using inference::Request;
using inference::SamplingConfig;

namespace {

std::vector<TokenId> prompt_of(std::int64_t length, std::uint32_t salt, std::int64_t vocab = 101) {
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<TokenId>((i * 37 + salt * 11 + i * i * (salt + 1)) % vocab));
  return ids;
}

bool same(const Completion& a, const Completion& b) {
  return a.ids == b.ids && a.log_probs == b.log_probs && a.finish == b.finish;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const core::Error& error) {
    return error.room() + "." + std::to_string(error.number());
  }
  return "none";
}

}  // namespace

TEST_CASE("the engine is a generator") { STATIC_REQUIRE(inference::Generator<LocalEngine>); }

TEST_CASE("greedy decoding is the argmax of whole forward passes, for every architecture") {
  for (const std::string type : {"llama", "qwen2", "qwen3", "biases", "odd"}) {
    model::DecoderConfig config = reference::tiny(type);
    if (type == "biases") config.output_bias = config.mlp_bias = config.qkv_bias = true;
    if (type == "odd") {  // dimensions that fit no vector width
      config.head_dim = 10;
      config.hidden_size = 37;
      config.intermediate_size = 53;
    }
    const model::DecoderWeights weights = reference::random_weights(config, 1);
    LocalEngine engine(config, weights, {.max_slots = 4, .prefill_rows = 16, .threads = 1});
    SamplingConfig sampling{.temperature = 0.0};
    sampling.max_new_tokens = 30;
    for (const std::int64_t length : {1, 5, 31, 32, 33, 70}) {
      const Request request{.prompt = prompt_of(length, 3)};
      const Completion completion = engine.generate(std::vector{request}, sampling, {})[0][0];
      REQUIRE(completion.ids.size() == 30);
      std::vector<TokenId> ids = request.prompt;
      ids.insert(ids.end(), completion.ids.begin(), completion.ids.end());
      const at::Tensor logits = reference::logits(config, weights, ids);
      const at::Tensor log_probs = logits.log_softmax(-1);
      for (std::size_t n = 0; n < completion.ids.size(); ++n) {
        const std::int64_t row = length - 1 + static_cast<std::int64_t>(n);
        INFO(type << " length " << length << " token " << n);
        REQUIRE(logits[row].argmax().item<std::int64_t>() == completion.ids[n]);
        REQUIRE(completion.log_probs[n] == Approx(log_probs[row][completion.ids[n]].item<double>()).margin(2e-4));
      }
    }
  }
}
