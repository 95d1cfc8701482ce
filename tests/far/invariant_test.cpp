// Generation whose numbers depend on nothing but weights and tokens, on the far device.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/load.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

std::unique_ptr<model::Decoder> far_decoder(const std::string& family, at::ScalarType dtype) {
  return model::load_decoder(golden / family, {.dtype = dtype, .device = support::far::device()});
}

// Prompts that begin alike, of one row and of more than a part of a pass has.
std::vector<inference::RequestSpec> specs_of(const model::Decoder& decoder, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<inference::RequestSpec> out;
  for (const std::int64_t length : {1, 70, 40, 5}) {
    inference::RequestSpec spec{.count = 2,
                                .sampling = {.temperature = 0.9, .max_new_tokens = 4},
                                .key = {.seed = 5},
                                .first_index = static_cast<std::uint64_t>(10 * length),
                                .ignore_eos = true};
    for (std::int64_t i = 0; i < length; ++i)
      spec.prompt.push_back(static_cast<data::TokenId>((i * 37 + i * i) % decoder.config().vocab_size));
    out.push_back(std::move(spec));
  }
  std::shuffle(out.begin(), out.end(), random);
  return out;
}

using Found = std::vector<std::vector<data::Completion>>;  // by prompt length

// Together: steps between arrivals as `random` has it, and a cache so small that some are preempted; or one after the other.
Found drawn(const model::Decoder& decoder, inference::EngineConfig config, unsigned seed, bool together) {
  inference::DecoderEngine engine(decoder.config(), config.for_weights(decoder.weights()));
  engine.scheduler().set_weights(engine.view(decoder.weights()));
  std::mt19937 random(seed);
  Found out(100);
  for (inference::RequestSpec& spec : specs_of(decoder, seed)) {
    auto& to = out[spec.prompt.size()];
    spec.on_end = [&to](inference::RequestId, inference::RequestResult&& result) {
      for (inference::CompletionResult& one : result.completions) to.push_back(std::move(one.completion));
    };
    (void)engine.scheduler().submit(std::move(spec));
    if (!together) engine.scheduler().drain();
    for (unsigned i = random() % 3; i > 0; --i) engine.scheduler().step();
  }
  engine.scheduler().drain();
  return out;
}

std::size_t different(const Found& a, const Found& b) {
  std::size_t out = 0;
  for (std::size_t r = 0; r < a.size(); ++r) {
    REQUIRE(a[r].size() == b[r].size());
    for (std::size_t c = 0; c < a[r].size(); ++c) {
      REQUIRE(!a[r][c].ids.empty());
      out += a[r][c].ids != b[r][c].ids || a[r][c].log_probs != b[r][c].log_probs ? 1 : 0;
    }
  }
  return out;
}

}  // namespace

TEST_CASE("an invariant engine gives a request the same bits alone, beside others, after cache hits and preemption") {
  for (const bool kernels : {false, true}) {
    INFO("kernels " << kernels);
    std::unique_ptr<support::far::WithKernels> with;
    if (kernels) with = std::make_unique<support::far::WithKernels>();
    const auto far = far_decoder(kernels ? "qwen2" : "qwen2_window", kernels ? at::kBFloat16 : at::kFloat);
    const inference::EngineConfig config = inference::EngineConfig{.invariant = true}.for_weights(far->weights());
    const std::size_t page = inference::KvCache(far->config(), *config.cache_element).page_bytes();
    const Found alone = drawn(*far, config, 1, false);
    for (const unsigned seed : {3U, 2U}) {
      inference::EngineConfig other = config;
      other.prefill_rows = seed == 2 ? 7 : 150;  // what a pass has of prompts is no part of it
      other.cache_bytes = seed == 2 ? 0 : 9 * page;
      CHECK(different(alone, drawn(*far, other, seed, true)) == 0);
      if (kernels) break;  // they are slow on the host
    }
  }
}

TEST_CASE("without it the bits of a request follow what is computed with it") {
  const auto far = far_decoder("qwen2_window", at::kFloat);
  const inference::EngineConfig config = inference::EngineConfig{}.for_weights(far->weights());
  const Found alone = drawn(*far, config, 1, false);
  CHECK(different(alone, drawn(*far, config, 2, true)) > 0);
}

TEST_CASE("an invariant engine's numbers are the CPU's to rounding; what it cannot compute so is refused") {
  const auto near = model::load_decoder(golden / "qwen3");
  const auto far = far_decoder("qwen3", at::kFloat);
  const Found a = drawn(*near, inference::EngineConfig{.invariant = true}, 1, true),  // no matter on the CPU
      b = drawn(*far, inference::EngineConfig{.invariant = true}, 1, true);
  for (std::size_t r = 0; r < a.size(); ++r)
    for (std::size_t c = 0; c < a[r].size(); ++c) {
      CHECK(a[r][c].ids == b[r][c].ids);
      for (std::size_t t = 0; t < a[r][c].log_probs.size(); ++t)
        CHECK(std::abs(a[r][c].log_probs[t] - b[r][c].log_probs[t]) < 1e-4F);
    }
  for (const auto& [family, why] : {std::pair("qwen3_moe", "experts"), std::pair("qwen3_5", "linear attention")}) {
    const auto other = far_decoder(family, at::kFloat);
    CHECK(support::lacks(support::raised_by([&, &family = family] {
                           inference::LocalEngine engine(other->config(), other->weights(), {.invariant = true});
                         }),
                         {"inference.21", why, "trl.generation_invariant", "--generation-invariant"}) == "");
  }
}
