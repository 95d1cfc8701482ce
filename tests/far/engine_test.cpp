// Generation on a device whose memory the host may not touch.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using support::raised_by;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

std::vector<data::TokenId> prompt_of(std::int64_t length, std::int64_t salt, std::int64_t vocabulary) {
  std::vector<data::TokenId> ids;
  for (std::int64_t i = 0; i < length; ++i)
    ids.push_back(static_cast<data::TokenId>((i * 37 + salt * 11 + i * i * (salt + 1)) % vocabulary));
  return ids;
}

std::vector<std::vector<data::Completion>> generated(const model::Decoder& decoder, inference::EngineConfig engine = {},
                                                     std::int64_t tokens = 20) {
  inference::LocalEngine local(decoder.config(), decoder.weights(), engine);
  const std::int64_t vocabulary = decoder.config().vocab_size;
  std::vector<inference::Request> requests;
  for (const std::int64_t length : {3, 20, 40})
    requests.push_back({.prompt = prompt_of(length, length, vocabulary),
                        .count = 3,
                        .first_index = static_cast<std::uint64_t>(length)});
  return local.generate(requests, {.temperature = 0.9, .top_p = 0.95, .max_new_tokens = tokens}, {.seed = 5});
}

// Tokens equal, log-probs to rounding.
void check_same(const std::vector<std::vector<data::Completion>>& a,
                const std::vector<std::vector<data::Completion>>& b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (std::size_t r = 0; r < a.size(); ++r) {
    REQUIRE(a[r].size() == b[r].size());
    for (std::size_t c = 0; c < a[r].size(); ++c) {
      CHECK(a[r][c].ids == b[r][c].ids);
      REQUIRE(a[r][c].log_probs.size() == b[r][c].log_probs.size());
      for (std::size_t t = 0; t < a[r][c].log_probs.size(); ++t)
        CHECK(std::abs(a[r][c].log_probs[t] - b[r][c].log_probs[t]) < tolerance);
    }
  }
}

}  // namespace

TEST_CASE("a device's engine draws the CPU's tokens, in every family") {
  for (const std::string family :
       {"llama",   "llama3_rope", "mistral", "qwen2",   "qwen2_window", "qwen3",     "qwen3_yarn", "smollm3",
        "gemma2",  "gemma3",      "olmo2",   "phi3",    "glm4",         "granite",   "qwen3_moe",  "qwen2_moe",
        "mixtral", "cohere2",     "gpt_oss", "qwen3_5", "qwen3_5_moe",  "qwen3_next"}) {
    INFO(family);
    const auto near = model::load_decoder(golden / family);
    const auto far = model::load_decoder(golden / family, {.device = support::far::device()});
    REQUIRE(far->device() == support::far::device());
    check_same(generated(*near), generated(*far), 1e-4);
  }
}

TEST_CASE("a device's engine in bfloat16 is the CPU's to rounding") {
  const auto near = model::load_decoder(golden / "qwen3");
  const auto far = model::load_decoder(golden / "qwen3", {.dtype = at::kBFloat16, .device = support::far::device()});
  const auto a = generated(*near, {}, 1), b = generated(*far, {}, 1);
  for (std::size_t r = 0; r < a.size(); ++r)
    for (std::size_t c = 0; c < a[r].size(); ++c)
      if (a[r][c].ids == b[r][c].ids) CHECK(std::abs(a[r][c].log_probs[0] - b[r][c].log_probs[0]) < 3e-2);
}

TEST_CASE("a device's engine reads adapters, forks prompts, reuses prefixes and gives its memory back") {
  const auto adapted = [](at::Device device, bool dora) {
    auto decoder = model::load_decoder(golden / "qwen2", {.device = device});
    model::attach_lora(*decoder,
                       {.r = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj", "down_proj"}, .use_dora = dora}, 7);
    // What B holds at the start changes nothing.
    for (const auto& p : decoder->parameters())
      if (p.name.find("lora_B") != std::string::npos) p.value.detach().fill_(0.02);
    return decoder;
  };
  for (const bool dora : {false, true}) {
    const auto near = adapted(at::kCPU, dora), far = adapted(support::far::device(), dora);
    check_same(generated(*near), generated(*far), 1e-4);
    check_same(generated(*near, {.max_slots = 2, .prefill_rows = 7}),
               generated(*far, {.max_slots = 2, .prefill_rows = 7}), 1e-4);
  }
  const auto far = model::load_decoder(golden / "qwen2", {.device = support::far::device()});
  inference::LocalEngine engine(far->config(), far->weights(), {.keep_prefixes = true});
  const std::vector<inference::Request> requests = {{.prompt = prompt_of(70, 1, far->config().vocab_size), .count = 2}};
  const auto first = engine.generate(requests, {.max_new_tokens = 4}, {.seed = 1});
  const auto again = engine.generate(requests, {.max_new_tokens = 4}, {.seed = 1});
  check_same(first, again, 1e-5);
  CHECK(engine.counts().cached_tokens >= 64);
  CHECK(engine.counts().pages_kept > 0);
  engine.release_memory();
  CHECK(engine.counts().pages_kept == 0);
  check_same(first, engine.generate(requests, {.max_new_tokens = 4}, {.seed = 1}), 1e-5);
}

TEST_CASE("a token step of a device's engine reads its logits and nothing else") {
  const auto far = model::load_decoder(golden / "qwen2", {.device = support::far::device()});
  inference::LocalEngine engine(far->config(), far->weights());
  const std::vector<inference::Request> requests = {{.prompt = prompt_of(5, 1, far->config().vocab_size), .count = 4}};
  const auto count = [&](std::int64_t tokens) {
    const auto before = support::far::counts();
    (void)engine.generate(requests, {.max_new_tokens = tokens}, {.seed = 1});
    return support::far::counts().since(before);
  };
  const auto few = count(4), more = count(8);
  const std::int64_t layers = far->config().layers;
  CHECK((more.copies_out - few.copies_out) == 4);  // logits, once a token step
  CHECK(more.scalars == 0);
  CHECK((more.copies_in - few.copies_in) / 4 <= 9);
  CHECK((more.operators - few.operators) / 4 <= 10 + 60 * layers);
}

TEST_CASE("copies of weights, and blocks of a document, stay on the device") {
  const auto near = model::load_decoder(golden / "qwen2");
  const auto far = model::load_decoder(golden / "qwen2", {.device = support::far::device()});
  const auto snapshots = std::make_shared<inference::WeightSnapshots>(far->config(), far->weights());
  snapshots->publish(3);
  inference::SnapshotEngine engine(snapshots);
  const std::vector<inference::Request> requests = {{.prompt = prompt_of(9, 2, far->config().vocab_size), .count = 2}};
  const auto drawn = engine.generate(requests, {.max_new_tokens = 6}, {.seed = 1});
  inference::LocalEngine plain(near->config(), near->weights());
  check_same(plain.generate(requests, {.max_new_tokens = 6}, {.seed = 1}), drawn, 1e-4);

  const std::vector<data::TokenId> document = prompt_of(50, 4, far->config().vocab_size);
  const inference::BlockRequest blocks{.document = document, .starts = {8, 16, 40}, .count = 2, .length = 4};
  inference::BlockEngine a(near->config(), near->weights()), b(far->config(), far->weights());
  const auto samples = a.generate(blocks, {}, {.seed = 2});
  CHECK(samples == b.generate(blocks, {}, {.seed = 2}));
  const std::size_t held = support::far::held_bytes();
  for (inference::BlockEngine* const one : {&a, &b}) one->release_memory();
  CHECK(support::far::held_bytes() < held);
  CHECK(samples == a.generate(blocks, {}, {.seed = 2}));
  CHECK(samples == b.generate(blocks, {}, {.seed = 2}));
}

TEST_CASE("what a device cannot do is refused by name") {
  const auto far = model::load_decoder(golden / "qwen2", {.device = support::far::device()});
  inference::DecoderEngine cpu(far->config());
  CHECK(raised_by([&] { (void)cpu.view(far->weights()); }).find("[rlalgo.inference.6]") != std::string::npos);
}
