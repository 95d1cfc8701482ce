// Generation on the far device with weights, and with keys and values, in 8 bits: by operators and by the project's own kernels.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/quantised_copies.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using inference::CacheElement;
using inference::EngineConfig;
using inference::Quantization;
using support::lacks;
using support::raised_by;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

std::unique_ptr<model::Decoder> far_decoder(const std::string& family, at::ScalarType dtype = at::kBFloat16) {
  return model::load_decoder(golden / family, {.dtype = dtype, .device = support::far::device()});
}

std::vector<inference::Request> requests_of(const model::Decoder& decoder) {
  std::vector<inference::Request> out;
  for (const std::int64_t length : {3, 40}) {
    std::vector<data::TokenId> ids;
    for (std::int64_t i = 0; i < length; ++i)
      ids.push_back(static_cast<data::TokenId>((i * 37 + length * 11 + i * i) % decoder.config().vocab_size));
    out.push_back({.prompt = ids, .count = 2, .first_index = static_cast<std::uint64_t>(length)});
  }
  return out;
}

using Drawn = std::vector<std::vector<data::Completion>>;
constexpr std::int64_t tokens = 6;

Drawn drawn(const model::Decoder& decoder, EngineConfig engine, std::int64_t length = tokens) {
  inference::LocalEngine local(decoder.config(), decoder.weights(), engine);
  return local.generate(requests_of(decoder), {.temperature = 0.9, .max_new_tokens = length}, {.seed = 5});
}

// The same tokens, log-probs to the rounding of float32: what is found in the prefix cache changes the rows of a pass.
bool alike(const Drawn& a, const Drawn& b) {
  for (std::size_t r = 0; r < a.size(); ++r)
    for (std::size_t c = 0; c < a[r].size(); ++c) {
      if (a[r][c].ids != b[r][c].ids) return false;
      for (std::size_t t = 0; t < a[r][c].log_probs.size(); ++t)
        if (std::abs(a[r][c].log_probs[t] - b[r][c].log_probs[t]) > 1e-4F) return false;
    }
  return true;
}

bool same(const Drawn& a, const Drawn& b) {
  for (std::size_t r = 0; r < a.size(); ++r)
    for (std::size_t c = 0; c < a[r].size(); ++c)
      if (a[r][c].ids != b[r][c].ids || a[r][c].log_probs != b[r][c].log_probs) return false;
  return true;
}

struct Distance {
  double mean = 0.0, most = 0.0;
};

// Of the log-probs that completions were drawn with from those of other weights, in float32 on the CPU.
Distance distance(const model::DecoderConfig& config, const model::DecoderWeights& near, const model::Decoder& decoder,
                  const Drawn& found) {
  inference::LocalEngine exact(config, near, {.cache_element = CacheElement::float32});
  const auto asked = requests_of(decoder);
  Distance out;
  std::int64_t count = 0;
  for (std::size_t r = 0; r < found.size(); ++r)
    for (const data::Completion& one : found[r]) {
      const std::vector<inference::Request> given = {{.prompt = asked[r].prompt, .given = one.ids}};
      const auto scored =
          exact.generate(given, {.temperature = 0.9, .max_new_tokens = 64}, {.seed = 1})[0][0].log_probs;
      REQUIRE(scored.size() == one.log_probs.size());
      for (std::size_t t = 0; t < scored.size(); ++t, ++count) {
        const double apart = std::abs(static_cast<double>(scored[t]) - one.log_probs[t]);
        out.mean += apart;
        out.most = std::max(out.most, apart);
      }
    }
  out.mean /= static_cast<double>(count);
  return out;
}

// Weights of the CPU in the place of which stand the numbers of their copies.
model::DecoderWeights as_copied(const model::Decoder& near, Quantization how, bool merges = false) {
  inference::QuantisedCopies copies(how, merges);
  const auto made = copies.of(near.weights(), {});
  model::DecoderWeights out = made.weights;
  for (model::LayerWeights& layer : out.layers) {
    const auto dense = [](model::Linear& map) {
      if (!map.quantised) return;
      map.weight = map.quantised->dense(at::kFloat);
      map.quantised = nullptr;
    };
    layer.each_map(dense);
    dense(layer.qkv_proj);
    dense(layer.gate_up_proj);
  }
  out.lm_head = made.head->dense(at::kFloat);
  return out;
}

}  // namespace

TEST_CASE("a device draws from the numbers that its copies in 8 bits stand for, in every family") {
  for (const std::string family : {"llama", "gemma3", "qwen3_moe", "qwen3_5"})
    for (const Quantization how : {Quantization::int8, Quantization::fp8}) {
      INFO(family << (how == Quantization::int8 ? " int8" : " fp8"));
      const auto near = model::load_decoder(golden / family);
      const auto far = far_decoder(family, at::kFloat);
      const Drawn found = drawn(*far, {.quantization = how});
      CHECK(distance(near->config(), as_copied(*near, how), *far, found).most < 2e-4);
      // Of other numbers than the model's own.
      CHECK(distance(near->config(), near->weights(), *far, found).most > 2e-4);
    }
}

TEST_CASE(
    "a pass over weights in 8 bits has nine launches a layer, and its log-probs are those of the copies to bfloat16") {
  for (const auto& [family, how] : {std::pair("qwen2", Quantization::int8), std::pair("phi3", Quantization::fp8)}) {
    INFO(family);
    const auto near = model::load_decoder(golden / family);
    const auto far = far_decoder(family);
    for (const auto& p : near->parameters()) p.value.detach().copy_(p.value.detach().to(at::kBFloat16));
    const auto plain = distance(near->config(), near->weights(), *far, drawn(*far, {}));
    const auto by_operators = distance(near->config(), as_copied(*near, how), *far, drawn(*far, {.quantization = how}));
    CHECK(by_operators.mean < 2 * plain.mean + 0.01);
    const support::far::WithKernels kernels;
    inference::LocalEngine engine(far->config(), far->weights(), {.quantization = how});
    const auto draw = [&](std::int64_t length) {
      const auto before = support::far::counts();
      const auto out = engine.generate(requests_of(*far), {.temperature = 0.9, .max_new_tokens = length}, {.seed = 5});
      return std::pair(out, support::far::counts().since(before));
    };
    (void)draw(6);
    const auto few = draw(3).second;
    const auto [found, more] = draw(6);
    CHECK(more.replays - few.replays == 3);
    CHECK(more.nodes - few.nodes == 3 * (2 + 9 * far->config().layers));
    // The head, and the draws; its numbers in float32 are an operator.
    CHECK(more.kernels - few.kernels == 3 * 2);
    CHECK(distance(near->config(), as_copied(*near, how), *far, found).mean < 2 * plain.mean + 0.01);
  }
}

TEST_CASE("weights that change in place are copied anew into the memory that a recorded pass reads") {
  const support::far::WithKernels kernels;
  const auto far = far_decoder("qwen2");
  const EngineConfig config{.quantization = Quantization::int8};
  inference::LocalEngine engine(far->config(), far->weights(), config);
  const auto draw = [&] {
    return engine.generate(requests_of(*far), {.temperature = 0.9, .max_new_tokens = tokens}, {.seed = 5});
  };
  for (int i = 0; i < 3; ++i) (void)draw();
  const Drawn first = draw();
  CHECK(same(first, drawn(*far, config)));
  const std::size_t held = support::far::held_bytes();
  for (const auto& p : far->parameters()) p.value.detach().mul_(1.25);
  const auto before = support::far::counts();
  const Drawn second = draw();
  CHECK(support::far::counts().since(before).replays >= tokens - 1);
  CHECK(support::far::held_bytes() == held);
  CHECK_FALSE(same(first, second));
  CHECK(same(second, drawn(*far, config)));
  const std::size_t copies = inference::quantised_bytes(Quantization::int8, far->weights());
  engine.release_memory();
  CHECK(support::far::held_bytes() + copies <= held);
  CHECK(same(second, draw()));
}

TEST_CASE("an adapter is multiplied into the copies, one map at a time, or stays apart beside them") {
  const auto lora = [](model::Decoder& decoder, double value) {
    model::attach_lora(decoder, {.r = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj", "up_proj", "down_proj"}},
                       7);
    for (const auto& p : decoder.parameters())
      if (p.name.find("lora_B") != std::string::npos) p.value.detach().fill_(value);
  };
  const auto near = model::load_decoder(golden / "qwen2"), base = model::load_decoder(golden / "qwen2");
  const auto far = far_decoder("qwen2", at::kFloat);
  lora(*near, 0.02);
  lora(*far, 0.02);
  for (const Quantization how : {Quantization::int8, Quantization::fp8})
    for (const bool merges : {true, false}) {
      INFO(merges);
      const Drawn found = drawn(*far, {.quantization = how, .merge_adapter = merges});
      // Apart they add to the copies of the base; multiplied in they are part of what is rounded.
      CHECK(distance(near->config(), as_copied(*near, how, merges), *far, found).most < 2e-4);
      const Distance apart = distance(near->config(), near->weights(), *far, found);
      CHECK(apart.mean < (how == Quantization::int8 ? 0.1 : 0.5));
      // Without the adapter, or with it twice, they would be far from these.
      if (how == Quantization::int8)
        CHECK(apart.mean < 0.5 * distance(base->config(), base->weights(), *far, found).mean);
    }
  // Another adapter, in place: the copies follow.
  inference::LocalEngine engine(far->config(), far->weights(),
                                {.quantization = Quantization::int8, .merge_adapter = true});
  const auto draw = [&] {
    return engine.generate(requests_of(*far), {.temperature = 0.9, .max_new_tokens = tokens}, {.seed = 5});
  };
  const Drawn first = draw();
  for (const auto& p : far->parameters())
    if (p.name.find("lora_B") != std::string::npos) p.value.detach().neg_();
  const Drawn second = draw();
  CHECK_FALSE(same(first, second));
  CHECK(same(second, drawn(*far, {.quantization = Quantization::int8, .merge_adapter = true})));
}

TEST_CASE("snapshots in 8 bits keep one copy, of the version that is drawn with") {
  const auto far = far_decoder("qwen2", at::kFloat);
  const auto snapshots = std::make_shared<inference::WeightSnapshots>(far->config(), far->weights());
  inference::SnapshotEngine engine(snapshots, {.quantization = Quantization::int8});
  CHECK(engine.quantizes());
  std::size_t held = 0;
  for (std::int64_t version = 0; version < 4; ++version) {
    for (const auto& p : far->parameters()) p.value.detach().mul_(0.95);
    snapshots->publish(version);
    const Drawn expected = drawn(*far, {.quantization = Quantization::int8});
    for (const auto& p : far->parameters()) p.value.detach().mul_(0.98);  // not published
    for (int call = 0; call < 2; ++call)
      CHECK(alike(engine.generate(requests_of(*far), {.temperature = 0.9, .max_new_tokens = tokens}, {.seed = 5}),
                  expected));
    if (version == 1) held = support::far::held_bytes();
  }
  CHECK(support::far::held_bytes() <= held);
}

TEST_CASE("keys and values in fp8 take half of bfloat16's memory, and are near it by operators and by kernels") {
  for (const std::string family : {"qwen2", "gemma3", "qwen2_window"}) {
    INFO(family);
    const auto near = model::load_decoder(golden / family);
    const auto far = far_decoder(family);
    const EngineConfig eight{.cache_element = CacheElement::float8};
    CHECK(eight.quantizes());
    CHECK(2 * inference::KvCache(far->config(), CacheElement::float8).page_bytes() ==
          inference::KvCache(far->config(), CacheElement::bfloat16).page_bytes());
    const auto plain = distance(near->config(), near->weights(), *far, drawn(*far, {}));
    const Drawn operators = drawn(*far, eight);
    const auto by_operators = distance(near->config(), near->weights(), *far, operators);
    CHECK(by_operators.mean < 3 * plain.mean + 0.1);
    CHECK_FALSE(same(operators, drawn(*far, {})));
    const support::far::WithKernels kernels;
    inference::LocalEngine engine(far->config(), far->weights(), eight);
    const auto before = support::far::counts();
    const Drawn found = engine.generate(requests_of(*far), {.temperature = 0.9, .max_new_tokens = tokens}, {.seed = 5});
    if (family == "qwen2") CHECK(support::far::counts().since(before).replays >= 4);
    CHECK(distance(near->config(), near->weights(), *far, found).mean < 3 * plain.mean + 0.1);
  }
}

TEST_CASE("pages in fp8 have the same numbers however rows of a pass are divided") {
  // In float32 by operators: keys and values rounded where they are written are all that differs from float32 pages.
  const auto far = far_decoder("qwen2", at::kFloat);
  const Drawn found = drawn(*far, {.max_slots = 6, .cache_element = CacheElement::float8});
  for (const EngineConfig& engine :
       {EngineConfig{.max_slots = 1, .cache_element = CacheElement::float8},
        EngineConfig{.max_slots = 2, .prefill_rows = 7, .cache_element = CacheElement::float8}}) {
    const Drawn other = drawn(*far, engine);
    for (std::size_t r = 0; r < found.size(); ++r)
      for (std::size_t c = 0; c < found[r].size(); ++c) {
        CHECK(found[r][c].ids == other[r][c].ids);
        for (std::size_t t = 0; t < found[r][c].log_probs.size(); ++t)
          CHECK(std::abs(found[r][c].log_probs[t] - other[r][c].log_probs[t]) < 2e-2);
      }
  }
}

TEST_CASE("all in 8 bits is as sure of its bits as the rest where numbers depend on nothing else") {
  const support::far::WithKernels kernels;
  const auto far = far_decoder("qwen2");
  for (const EngineConfig& config :
       {EngineConfig{.cache_element = CacheElement::float8, .quantization = Quantization::int8, .invariant = true},
        EngineConfig{.quantization = Quantization::fp8, .invariant = true}}) {
    const Drawn all = drawn(*far, config, 3);
    inference::LocalEngine engine(far->config(), far->weights(), config);
    const auto asked = requests_of(*far);
    for (std::size_t r = 0; r < asked.size(); ++r) {
      const auto alone =
          engine.generate(std::span(&asked[r], 1), {.temperature = 0.9, .max_new_tokens = 3}, {.seed = 5});
      for (std::size_t c = 0; c < alone[0].size(); ++c) {
        CHECK(alone[0][c].ids == all[r][c].ids);
        CHECK(alone[0][c].log_probs == all[r][c].log_probs);
      }
    }
  }
}

TEST_CASE("the CPU refuses fp8 by name") {
  const auto near = model::load_decoder(golden / "qwen2");
  CHECK(lacks(raised_by([&] {
                inference::LocalEngine(near->config(), near->weights(), {.quantization = Quantization::fp8});
              }),
              {"inference.19", "fp8", "int8"}) == "");
  CHECK(lacks(raised_by([&] {
                inference::LocalEngine(near->config(), near->weights(), {.cache_element = CacheElement::float8});
              }),
              {"inference.19", "keys and values", "--kv-cache-dtype"}) == "");
}
