#include <rlalgo/inference/block_engine.hpp>

#include <memory>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/decoders.hpp>

#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>

using namespace rlalgo;
using inference::BlockRequest;

namespace {

std::shared_ptr<model::Decoder> decoder(const std::string& type) {
  return model::random_decoder(model::parse_hf_config(support::small_config(type), "test"), 5);
}

std::vector<data::TokenId> document(std::size_t length) {
  std::vector<data::TokenId> out;
  for (std::size_t i = 0; i < length; ++i) out.push_back(static_cast<data::TokenId>((i * i + 3 * i) % 23));
  return out;
}

// The same draws from one request per block, each with its own prompt.
inference::BlockSamples by_prompts(const model::Decoder& model, const BlockRequest& request,
                                   const inference::SamplingConfig& sampling, inference::DrawKey key) {
  inference::LocalEngine engine(model.config(), model.weights());
  inference::SamplingConfig settings = sampling;
  settings.max_new_tokens = request.length;
  std::vector<inference::Request> requests;
  for (std::size_t k = 0; k < request.starts.size(); ++k)
    requests.push_back({.prompt = {request.document.begin(), request.document.begin() + request.starts[k]},
                        .count = request.count,
                        .first_index = request.first_index + k * static_cast<std::uint64_t>(request.count)});
  inference::BlockSamples out;
  for (const auto& group : engine.generate(requests, settings, key)) {
    out.emplace_back();
    for (const auto& completion : group) out.back().push_back(completion.ids);
  }
  return out;
}

}  // namespace

TEST_CASE("blocks are the completions of what stands before them, to the bit") {
  for (const char* type : {"llama", "qwen2", "qwen3", "qwen3_5_text"}) {
    const auto model = decoder(type);
    const auto text = document(77);
    for (const std::int64_t stride : {1, 3, 8, 32}) {
      BlockRequest request{.document = text, .starts = {}, .count = 3, .length = 5, .first_index = 40};
      for (std::int64_t start = 2; start + 5 <= 77; start += stride) request.starts.push_back(start);
      for (const inference::SamplingConfig& sampling :
           {inference::SamplingConfig{.temperature = 0.7}, inference::SamplingConfig{.temperature = 1.3, .top_p = 0.8},
            inference::SamplingConfig{.temperature = 0.0}}) {
        inference::BlockEngine engine(model->config(), model->weights(), {.max_slots = 7, .prefill_rows = 16});
        CHECK(engine.generate(request, sampling, {9, 4}) == by_prompts(*model, request, sampling, {9, 4}));
      }
    }
  }
}

TEST_CASE("blocks of an adapter are drawn with it, without dropout") {
  const auto model = decoder("llama");
  model::attach_lora(
      *model, {.r = 3, .alpha = 5, .dropout = 0.5, .target_pattern = "all-linear", .init = model::LoraInit::random}, 3);
  const auto text = document(40);
  const BlockRequest request{.document = text, .starts = {4, 9, 33}, .count = 2, .length = 6};
  inference::BlockEngine engine(model->config(), model->weights());
  CHECK(engine.generate(request, {}, {1, 1}) == by_prompts(*model, request, {}, {1, 1}));
}

TEST_CASE("work is one prefill and a row per further token") {
  const auto model = decoder("llama");
  const auto text = document(64);
  BlockRequest request{.document = text, .starts = {}, .count = 4, .length = 8};
  for (std::int64_t start = 8; start + 8 <= 64; start += 8) request.starts.push_back(start);
  inference::BlockEngine engine(model->config(), model->weights());
  const auto samples = engine.generate(request, {.temperature = 0.6}, {});
  REQUIRE(samples.size() == 7);
  for (const auto& block : samples)
    for (const auto& sample : block) CHECK(sample.size() == 8);
  CHECK(engine.counts().forward_rows == 56 + 7 * 4 * 7);
  CHECK(engine.counts().head_rows == 7 + 7 * 4 * 7);
}

// Blocks of 8 at every 8th of 1,024 tokens, 4 samples: 4,580 tokens stand in document and decoded rows together, and the
// last 8 of the document come after every anchor. Encoding the document anew for every token takes 46,992 of each.
TEST_CASE("work of a document of 1,024 tokens") {
  model::Json json = support::small_config("llama");
  json["max_position_embeddings"] = 1024;
  const auto model = model::random_decoder(model::parse_hf_config(json, "test"), 5);
  const auto text = document(1024);
  BlockRequest request{.document = text, .starts = {}, .count = 4, .length = 8};
  for (std::int64_t start = 8; start + 8 <= 1024; start += 8) request.starts.push_back(start);
  REQUIRE(request.starts.size() == 127);
  inference::BlockEngine engine(model->config(), model->weights());
  (void)engine.generate(request, {.temperature = 0.6}, {});
  CHECK(engine.counts().forward_rows == 4580 - 8);
  CHECK(engine.counts().head_rows == 3683);
  CHECK(46992 > 10 * engine.counts().forward_rows);
}

TEST_CASE("one token, one sample, no block") {
  const auto model = decoder("llama");
  const auto text = document(20);
  inference::BlockEngine engine(model->config(), model->weights());
  BlockRequest request{.document = text, .starts = {20}, .count = 1, .length = 1};
  CHECK(engine.generate(request, {}, {2, 2}) == by_prompts(*model, request, {}, {2, 2}));
  CHECK(engine.counts().forward_rows == 20);
  request.starts.clear();
  CHECK(engine.generate(request, {}, {}).empty());
  request.document = {};
  CHECK(engine.generate(request, {}, {}).empty());
}

TEST_CASE("the engine reads the weights where they are at every call") {
  const auto model = decoder("llama");
  const auto text = document(30);
  const BlockRequest request{.document = text, .starts = {3, 11, 19}, .count = 4, .length = 6};
  inference::BlockEngine engine(model->config(), model->weights());
  const auto before = engine.generate(request, {.temperature = 0.5}, {1, 1});
  {
    const c10::NoGradGuard no_grad;
    for (const auto& [name, value] : model->named_tensors()) value.detach().mul_(1.5);
  }
  const auto after = engine.generate(request, {.temperature = 0.5}, {1, 1});
  CHECK(after != before);
  CHECK(after == by_prompts(*model, request, {.temperature = 0.5}, {1, 1}));
}

TEST_CASE("blocks that cannot be drawn") {
  const auto model = decoder("llama");
  auto text = document(20);
  inference::BlockEngine engine(model->config(), model->weights());
  const auto with = [&](std::vector<std::int64_t> starts, std::int64_t length = 2) {
    return engine.generate({.document = text, .starts = std::move(starts), .count = 1, .length = length}, {}, {});
  };
  CHECK_THROWS_WITH(with({0}), Catch::Contains("[rlalgo.inference.15]"));
  CHECK_THROWS_WITH(with({21}), Catch::Contains("[rlalgo.inference.15]"));
  CHECK_THROWS_WITH(with({5, 5}), Catch::Contains("[rlalgo.inference.15]"));
  CHECK_THROWS_WITH(with({5}, 600), Catch::Contains("[rlalgo.inference.1]"));
  text[3] = 23;
  CHECK_THROWS_WITH(with({5}), Catch::Contains("[rlalgo.inference.3]"));
  CHECK_THROWS_WITH(inference::BlockEngine(model->config(), model->weights(), {.max_slots = 0}),
                    Catch::Contains("[rlalgo.inference.7]"));
}
