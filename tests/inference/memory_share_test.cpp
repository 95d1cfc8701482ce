#include <rlalgo/inference/memory_share.hpp>

#include <filesystem>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {
const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";
}  // namespace

TEST_CASE("a share of a device is weights, copies, passes, and pages for the rest") {
  const inference::MemoryShare share{
      .total = 80e9, .fraction = 0.5, .weights = 14e9, .copies = 13e9, .passes = 1e9, .page_bytes = 4'000'000};
  CHECK(share.share() == Approx(40e9));
  CHECK(share.left() == Approx(12e9));
  CHECK(share.pages() == 3000);
  CHECK(share.tokens() == 3000 * 32);
  // A sequence of 33 tokens fills two pages, and its last one is there twice for a while.
  CHECK(share.page_memory(33) == Approx(12e6));
  const inference::MemoryShare small{.total = 80e9, .fraction = 0.1, .weights = 14e9, .page_bytes = 4'000'000};
  CHECK(small.left() < 0.0);
  CHECK(small.pages() == 0);
}

TEST_CASE("what weights take is counted once, adapters among them, and of what is in bits the bits") {
  const auto plain = model::load_decoder(golden / "qwen2");
  const double whole = inference::weight_bytes(plain->config(), plain->weights());
  double numbers = 0.0;
  for (const auto& p : plain->parameters()) numbers += static_cast<double>(p.value.numel());
  CHECK(whole == Approx(4.0 * numbers));
  const auto half = model::load_decoder(golden / "qwen2", {.dtype = at::kBFloat16});
  CHECK(inference::weight_bytes(half->config(), half->weights()) == Approx(2.0 * numbers));
  model::attach_lora(*plain, {.r = 4, .alpha = 8, .target_modules = {"q_proj"}}, 7);
  double adapter = 0.0;
  for (const auto& p : plain->parameters()) adapter += static_cast<double>(p.value.nbytes());
  CHECK(inference::weight_bytes(plain->config(), plain->weights()) == Approx(whole + adapter));
  const auto bits = model::load_decoder(golden / "qwen2", {.quantisation = model::Quantisation{}});
  double maps = 0.0, codes = 0.0;
  model::visit_maps(bits->config(), bits->weights(), [&](const std::string&, const model::Linear& map, auto, bool) {
    maps += 4.0 * static_cast<double>(map.weight.numel());
    codes += static_cast<double>(map.quantised->bytes());
  });
  CHECK(codes < 0.3 * maps);
  CHECK(inference::weight_bytes(bits->config(), bits->weights()) == Approx(whole - maps + codes));
}

TEST_CASE("a share follows the engine: slots, rows of prompts, an adapter that is merged") {
  const auto decoder = model::load_decoder(golden / "qwen2");
  model::attach_lora(*decoder, {.r = 4, .alpha = 8, .target_modules = {"o_proj"}}, 7);
  const auto share = [&](const inference::EngineConfig& engine, std::int64_t longest) {
    return inference::memory_share(decoder->config(), decoder->weights(), engine, 0.5, longest);
  };
  const inference::MemoryShare one = share({.max_slots = 8}, 100);
  CHECK(one.total == 0.0);  // of the CPU nothing is shared
  CHECK(one.copies == 0.0);
  const model::DecoderConfig& c = decoder->config();
  CHECK(one.page_bytes == inference::KvCache(c, inference::CacheElement::float32).page_bytes());
  CHECK(share({.max_slots = 16}, 100).passes - one.passes >= 8.0 * 8.0 * static_cast<double>(c.vocab_size));
  CHECK(share({.max_slots = 8}, 200).passes > one.passes);
  // A pass with more prompts has more activations; what its attention keeps is bounded.
  CHECK(share({.max_slots = 8, .prefill_rows = 2048}, 1000).passes -
            share({.max_slots = 8, .prefill_rows = 256}, 1000).passes >=
        (2048 - 256) * 6.0 * 4.0 * static_cast<double>(c.hidden_size));
  // No more than all slots can have.
  CHECK(share({.max_slots = 8, .prefill_rows = 2048}, 10).passes ==
        share({.max_slots = 8, .prefill_rows = 80}, 10).passes);
  CHECK(share({.max_slots = 8, .prefill_rows = 2048}, 1'000'000).passes < 1.2e9);
  CHECK(share({.max_slots = 8}, 100).passes == share({.max_slots = 8, .prefill_rows = 256}, 100).passes);  // of the CPU
  CHECK(share({.max_slots = 8, .merge_adapter = true}, 100).copies ==
        Approx(4.0 * static_cast<double>(c.layers * c.hidden_size * c.heads * c.head_dim)));
}
