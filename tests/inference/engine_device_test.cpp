#include <rlalgo/inference/engine_device.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <rlalgo/inference/detail/tensor_engine_device.hpp>
#include <rlalgo/inference/engine_device_for.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/os/thread_pool.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

// Logits of the last of these tokens, which are computed in passes of `step` rows.
std::vector<float> logits_of(inference::EngineDevice& device, const model::Decoder& decoder,
                             const std::vector<data::TokenId>& tokens, std::size_t step) {
  const auto weights = device.view(decoder.weights(), nullptr, std::nullopt);
  inference::KvCache::Sequence sequence;
  device.forward().reserve(static_cast<std::int64_t>(tokens.size()));
  std::int64_t last = 0;
  for (std::size_t begin = 0; begin < tokens.size(); begin += step) {
    const std::size_t count = std::min(step, tokens.size() - begin);
    device.cache().extend(sequence, static_cast<std::int64_t>(count));
    std::vector<inference::Row> rows;
    for (std::size_t i = begin; i < begin + count; ++i)
      rows.push_back({tokens[i], static_cast<std::int64_t>(i), sequence.pages.data(), sequence.state});
    device.forward().run(*weights, rows);
    last = static_cast<std::int64_t>(count) - 1;
  }
  const std::int64_t asked[] = {last};
  const float* const logits = device.forward().logits(*weights, asked);
  std::vector<float> out(logits, logits + decoder.config().vocab_size);
  device.cache().release(sequence);
  return out;
}

}  // namespace

TEST_CASE("the pass from ATen's operators gives the logits of the CPU's kernels, prompt at once or token by token") {
  os::ThreadPool pool(1);
  for (const char* type :
       {"llama", "qwen2", "qwen3", "qwen3_moe", "qwen2_moe", "mixtral", "qwen3_5_text", "qwen3_next"}) {
    INFO(type);
    const auto decoder = model::random_decoder(model::parse_hf_config(support::small_config(type), "test"), 3);
    std::vector<data::TokenId> tokens;
    for (int i = 0; i < 70; ++i) tokens.push_back(i * 7 % 23);
    const inference::EngineConfig config = inference::EngineConfig{}.for_weights(decoder->weights());
    const auto cpu = inference::engine_device_for(decoder->config(), config, pool, 80);
    inference::detail::TensorEngineDevice tensors(decoder->config(), config, at::Device(at::kCPU), 80);
    const std::vector<float> expected = logits_of(*cpu, *decoder, tokens, 80);
    for (const std::size_t step : {80, 33, 1}) {
      const std::vector<float> found = logits_of(tensors, *decoder, tokens, step);
      for (std::size_t i = 0; i < expected.size(); ++i) CHECK(found[i] == Approx(expected[i]).margin(2e-4));
    }
    CHECK(tensors.cache().pages_in_use() == 0);
    tensors.cache().trim();
  }
}

// The kernels run on the host here (support/host_kernels.cpp).
TEST_CASE("a pass whose rows are attended to by the kernel over pages gives the logits of ATen's operators") {
  REQUIRE(cuda::compiled() != nullptr);
  for (const char* type : {"qwen3", "gemma3_text", "gemma2", "gpt_oss", "cohere2", "phi3", "glm4", "qwen3_5_text"}) {
    INFO(type);
    model::Json json = support::small_config(type);
    json["head_dim"] = 24;  // in the page 32
    json["hidden_size"] = 32;
    if (std::string(type) == "cohere2" || std::string(type) == "phi3")
      json["hidden_size"] = 24 * json["num_attention_heads"].get<int>();
    const auto decoder = model::random_decoder(model::parse_hf_config(json, "test"), 3, at::kBFloat16);
    std::vector<data::TokenId> tokens;
    for (int i = 0; i < 40; ++i) tokens.push_back(i * 7 % 23);
    inference::EngineConfig config = inference::EngineConfig{}.for_weights(decoder->weights());
    config.cache_element = inference::CacheElement::bfloat16;
    inference::detail::TensorEngineDevice aten(decoder->config(), config, at::Device(at::kCPU), 80);
    inference::detail::TensorEngineDevice own(decoder->config(), config, at::Device(at::kCPU), 80,
                                              {.table = cuda::compiled(), .device = at::kCPU});
    const std::vector<float> expected = logits_of(aten, *decoder, tokens, 1);
    double largest = 0.0;
    for (const float x : expected) largest = std::max(largest, std::abs(static_cast<double>(x)));
    // A prompt by operators, then one row by the kernel; all by the kernel, which costs a second a pass here.
    const std::vector<std::size_t> steps =
        std::string(type) == "qwen3" ? std::vector<std::size_t>{39, 1} : std::vector<std::size_t>{39};
    for (const std::size_t step : steps) {
      const std::vector<float> found = logits_of(own, *decoder, tokens, step);
      for (std::size_t i = 0; i < expected.size(); ++i)
        CHECK(std::abs(found[i] - expected[i]) < 6e-2 * largest);  // rounding of bfloat16 through the layers
    }
  }
}
