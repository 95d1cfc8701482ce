// Generation with a base in 4 or 8 bits.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/quantised.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/quantised";

// The largest distance between the log-probs that an engine reports of what it drew and those that training computes.
double apart(const std::string& name, at::ScalarType dtype, inference::EngineConfig engine, bool dora = false) {
  const auto decoder = model::load_decoder(golden / name, dtype);
  rlalgo::support::adapt_quantised(*decoder, name, dora);
  const c10::NoGradGuard no_grad;
  inference::LocalEngine local(decoder->config(), decoder->weights(), engine);
  const std::vector<std::vector<std::int32_t>> prompts = {{3, 61, 7}, {20, 33, 41, 2, 58, 9, 16, 30, 30, 8, 55, 44}};
  std::vector<inference::Request> requests;
  for (const auto& prompt : prompts) requests.push_back({.prompt = prompt, .count = 3});
  const auto drawn = local.generate(requests, {.temperature = 1.0, .max_new_tokens = 12}, {.seed = 5});
  double out = 0.0;
  for (std::size_t r = 0; r < drawn.size(); ++r)
    for (const data::Completion& one : drawn[r]) {
      const std::vector<model::Sequence> row = {{.prompt = prompts[r], .completion = one.ids}};
      const at::Tensor scored = decoder->score(model::build_tree(row, {}), {}).log_prob.to(at::kFloat);
      for (std::size_t t = 0; t < one.ids.size(); ++t)
        out = std::max(
            out, std::abs(static_cast<double>(one.log_probs[t]) - scored[static_cast<std::int64_t>(t)].item<double>()));
    }
  return out;
}

}  // namespace

TEST_CASE("an engine draws with the numbers that training multiplies") {
  for (const std::string name : {"llama_nf4", "qwen2_int8", "gemma2_fp4", "phi3_nf4", "qwen3_moe_nf4"}) {
    INFO(name);
    CHECK(apart(name, at::kFloat, {}) < 1e-4);
    CHECK(apart(name, at::kFloat, {.threads = 1, .pack_weights = true}, true) < 1e-4);
    CHECK(apart(name, at::kBFloat16, {}) < 0.15);
    // The output embedding alone is in other bits.
    CHECK(apart(name, at::kFloat, {.quantization = inference::Quantization::int8}) < 0.2);
  }
}

TEST_CASE("an engine holds no copy of weights in bits") {
  const auto decoder = model::load_decoder(golden / "llama_nf4");
  decoder->set_trained(false);
  inference::DecoderEngine engine(decoder->config(), {.threads = 1, .pack_weights = true});
  const auto view = engine.view(decoder->weights(), 1);
  const model::QuantisedWeight* const held = decoder->weights().layers[0].q_proj.quantised.get();
  CHECK(held->codes().use_count() == 1);
  CHECK(decoder->weights().layers[0].q_proj.quantised.use_count() == 1);
}
