#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>

#include <rlalgo/inference/cpu_kernels.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using data::Completion;
using data::Finish;
using data::TokenId;
using inference::DrawKey;
using inference::EngineConfig;
using inference::LocalEngine;
using inference::Quantization;
using inference::Request;
using inference::SamplingConfig;

namespace {
std::atomic<std::size_t> allocations{0};
}

[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size == 0 ? 1 : size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t step = static_cast<std::size_t>(alignment);
  if (void* p = std::aligned_alloc(step, (size + step - 1) / step * step)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

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
  for (const std::string type : {"llama", "qwen2", "qwen3", "biases", "odd", "experts"}) {
    model::DecoderConfig config = reference::tiny(type);
    if (type == "biases") config.specs[0].output_bias = config.specs[0].mlp_bias = config.specs[0].qkv_bias = true;
    if (type == "odd") {  // dimensions that fit no vector width
      config.head_dim = 10;
      config.hidden_size = 37;
      config.intermediate_size = 53;
    }
    const model::DecoderWeights weights = reference::random_weights(config, 1);
    LocalEngine engine(config, weights, {.max_slots = 4, .prefill_rows = 16, .threads = 1});
    SamplingConfig sampling;
    sampling.temperature = 0.0;
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

TEST_CASE("sampling log-probs are the training log-probs of the same tokens") {
  for (const std::string type : {"llama", "qwen2", "qwen3", "experts"})
    for (const double temperature : {1.0, 0.7}) {
      model::HfConfig hf;
      hf.decoder = reference::tiny(type);
      model::Decoder decoder(hf, reference::random_weights(hf.decoder, 2));
      decoder.set_trained(true);
      LocalEngine engine(decoder.config(), decoder.weights(), {.max_slots = 8, .prefill_rows = 16, .threads = 1});
      SamplingConfig sampling;
      sampling.temperature = temperature;
      sampling.max_new_tokens = 60;
      std::vector<Request> requests;
      for (const std::int64_t length : {1, 20, 45})
        requests.push_back({.prompt = prompt_of(length, 2), .count = 4, .first_index = requests.size() * 4});
      const auto completions = engine.generate(requests, sampling, {.seed = 8});
      std::vector<model::Sequence> rows;
      std::vector<float> sampled;
      for (std::size_t r = 0; r < requests.size(); ++r)
        for (const Completion& c : completions[r]) {
          rows.push_back({requests[r].prompt, c.ids});
          sampled.insert(sampled.end(), c.log_probs.begin(), c.log_probs.end());
        }
      const at::Tensor scored = decoder.score(model::build_tree(rows), {.temperature = temperature}).log_prob.detach();
      REQUIRE(scored.numel() == static_cast<std::int64_t>(sampled.size()));
      double worst = 0;
      for (std::size_t n = 0; n < sampled.size(); ++n)
        worst = std::max(worst, std::abs(scored[static_cast<std::int64_t>(n)].item<double>() - sampled[n]));
      INFO(type << " temperature " << temperature << " worst " << worst);
      CHECK(worst < (type == "experts" ? 2e-4 : 5e-5));  // a router's weights are quotients of exponentials
    }
}

TEST_CASE("given tokens are scored as if they had been drawn") {
  const model::DecoderConfig config = reference::tiny("qwen3");
  const model::DecoderWeights weights = reference::random_weights(config, 6);
  LocalEngine engine(config, weights, {.max_slots = 3, .prefill_rows = 16});
  for (const double temperature : {1.0, 0.7, 0.0}) {
    SamplingConfig sampling;
    sampling.temperature = temperature;
    sampling.max_new_tokens = 40;
    std::vector<Request> requests;
    for (const std::int64_t length : {1, 33, 20, 50, 7})
      requests.push_back({.prompt = prompt_of(length, 3), .first_index = requests.size()});
    const auto drawn = engine.generate(requests, sampling, {.seed = 3});
    for (std::size_t r = 0; r < requests.size(); ++r) requests[r].given = drawn[r][0].ids;
    sampling.max_new_tokens = 1;  // neither this …
    sampling.stop_ids = {drawn[0][0].ids[2], drawn[3][0].ids[0]};
    sampling.top_k = 1;  // … nor truncation concerns them
    const auto scored = engine.generate(requests, sampling, {.seed = 4});
    for (std::size_t r = 0; r < requests.size(); ++r) {
      REQUIRE(scored[r][0].ids == drawn[r][0].ids);
      CHECK(scored[r][0].log_probs == drawn[r][0].log_probs);
      CHECK(scored[r][0].finish == Finish::length);
    }
  }
  const std::int64_t most = config.max_position_embeddings;
  std::vector<Request> full = {{.prompt = prompt_of(10, 1), .given = prompt_of(most - 10, 2)}};
  CHECK(engine.generate(full, {}, {})[0][0].log_probs.size() == static_cast<std::size_t>(most - 10));
  full[0].given.push_back(1);
  CHECK(error_of([&] { engine.generate(full, {}, {}); }) == "inference.1");
  full[0].given = {1, 101};
  CHECK(error_of([&] { engine.generate(full, {}, {}); }) == "inference.3");
}

namespace {

// Requests of different lengths and group sizes, sampled with everything on.
struct Job {
  model::DecoderConfig config = reference::tiny("qwen3");
  model::DecoderWeights weights = reference::random_weights(config, 4);
  std::vector<Request> requests;
  SamplingConfig sampling;
  DrawKey key{.seed = 5, .step = 9};

  Job() {
    std::uint64_t index = 100;
    for (const std::int64_t length : {40, 3, 32, 64, 17, 1}) {
      requests.push_back({.prompt = prompt_of(length, 7), .count = length % 5 + 1, .first_index = index});
      index += 50;
    }
    sampling.max_new_tokens = 45;
    sampling.temperature = 0.9;
    sampling.top_p = 0.95;
    sampling.top_k = 60;
    sampling.repetition_penalty = 1.1;
    for (TokenId id = 0; id < 3; ++id) sampling.stop_ids.push_back(id * 30 + 5);
  }
  std::vector<std::vector<Completion>> run(EngineConfig engine) const {
    return LocalEngine(config, weights, engine).generate(requests, sampling, key);
  }
};

}  // namespace

TEST_CASE("slots, prefill, threads, order and grouping change no bit of the result") {
  const Job job;
  const auto expected = job.run({.max_slots = 64, .prefill_rows = 256, .threads = 1});
  bool stopped = false, cut = false;
  for (std::size_t r = 0; r < expected.size(); ++r) {
    REQUIRE(expected[r].size() == static_cast<std::size_t>(job.requests[r].count));
    for (const Completion& c : expected[r]) {
      REQUIRE(c.ids.size() == c.log_probs.size());
      stopped = stopped || c.finish == Finish::stop;
      cut = cut || c.finish == Finish::length;
    }
  }
  REQUIRE(stopped);
  REQUIRE(cut);
  const auto check = [&](const auto& found) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t r = 0; r < found.size(); ++r) {
      REQUIRE(found[r].size() == expected[r].size());
      for (std::size_t j = 0; j < found[r].size(); ++j) REQUIRE(same(found[r][j], expected[r][j]));
    }
  };
  for (const std::int64_t slots : {1, 3, 5, 16})
    for (const std::int64_t prefill : {1, 7, 64})
      check(job.run({.max_slots = slots, .prefill_rows = prefill, .threads = 1}));
  for (const int threads : {2, 3}) check(job.run({.max_slots = 8, .prefill_rows = 32, .threads = threads}));
  check(job.run({}));

  Job reversed = job;
  std::reverse(reversed.requests.begin(), reversed.requests.end());
  auto found = reversed.run({.max_slots = 4, .prefill_rows = 9, .threads = 1});
  std::reverse(found.begin(), found.end());
  check(found);

  Job apart = job;  // every completion a request of its own
  apart.requests.clear();
  for (const Request& request : job.requests)
    for (std::int64_t j = 0; j < request.count; ++j)
      apart.requests.push_back(
          {.prompt = request.prompt, .count = 1, .first_index = request.first_index + static_cast<std::uint64_t>(j)});
  const auto single = apart.run({.max_slots = 6, .prefill_rows = 20, .threads = 1});
  std::size_t n = 0;
  for (const auto& group : expected)
    for (const Completion& c : group) REQUIRE(same(single[n++][0], c));
}

TEST_CASE("the same call gives the same bytes again, another key other completions") {
  Job job;
  LocalEngine engine(job.config, job.weights, {.max_slots = 4});
  const auto first = engine.generate(job.requests, job.sampling, job.key);
  const auto again = engine.generate(job.requests, job.sampling, job.key);
  const auto other_step = engine.generate(job.requests, job.sampling, {.seed = 5, .step = 10});
  const auto other_seed = engine.generate(job.requests, job.sampling, {.seed = 6, .step = 9});
  for (std::size_t r = 0; r < first.size(); ++r)
    for (std::size_t j = 0; j < first[r].size(); ++j) CHECK(same(first[r][j], again[r][j]));
  CHECK_FALSE(same(first[0][0], other_step[0][0]));
  CHECK_FALSE(same(first[0][0], other_seed[0][0]));
  CHECK(first[2].size() == 3);
  CHECK_FALSE(same(first[2][0], first[2][1]));
}

TEST_CASE("weights updated in place are seen at the next call") {
  Job job;
  LocalEngine engine(job.config, job.weights, {.max_slots = 4});
  const auto before = engine.generate(job.requests, job.sampling, job.key);
  job.weights.layers[1].up_proj.weight.mul_(-0.5);
  job.weights.final_norm.add_(0.3);
  const auto after = engine.generate(job.requests, job.sampling, job.key);
  const auto fresh = job.run({.max_slots = 4});
  CHECK_FALSE(same(before[0][0], after[0][0]));
  for (std::size_t r = 0; r < after.size(); ++r)
    for (std::size_t j = 0; j < after[r].size(); ++j) CHECK(same(after[r][j], fresh[r][j]));
}

TEST_CASE("kept prefixes change no bit of the calls they serve, and are forgotten with the weights") {
  const model::DecoderConfig config = reference::tiny("qwen3");
  const model::DecoderWeights weights = reference::random_weights(config, 4);
  LocalEngine keeping(config, weights, {.max_slots = 4, .threads = 1, .keep_prefixes = true});
  LocalEngine plain(config, weights, {.max_slots = 4, .threads = 1});
  SamplingConfig sampling;
  sampling.max_new_tokens = 20;
  std::vector<Request> requests;
  for (std::uint32_t r = 0; r < 6; ++r) requests.push_back({.prompt = prompt_of(70, r / 2), .first_index = r});
  const auto turn = [&](std::uint64_t step) {  // both engines; the next turn goes on where this one ends
    const auto kept = keeping.generate(requests, sampling, {.seed = 3, .step = step});
    const auto fresh = plain.generate(requests, sampling, {.seed = 3, .step = step});
    for (std::size_t r = 0; r < requests.size(); ++r) {
      REQUIRE(same(kept[r][0], fresh[r][0]));
      requests[r].prompt.insert(requests[r].prompt.end(), fresh[r][0].ids.begin(), fresh[r][0].ids.end());
    }
  };
  const auto reused = [&](std::uint64_t step) {  // tokens that a turn took from an earlier call or from its neighbours
    const std::uint64_t kept = keeping.counts().cached_tokens, fresh = plain.counts().cached_tokens;
    turn(step);
    return std::pair(keeping.counts().cached_tokens - kept, plain.counts().cached_tokens - fresh);
  };
  turn(0);
  for (std::uint64_t step = 1; step < 3; ++step) {
    const auto [kept, fresh] = reused(step);
    CHECK(kept > fresh);
  }
  {
    const at::NoGradGuard guard;
    weights.embedding.mul_(1.1);
  }
  keeping.weights_changed();
  const auto [kept, fresh] = reused(3);
  CHECK(kept == fresh);
}

TEST_CASE(
    "bf16 weights score tokens as their values in f32 do, up to the rounding of x where the CPU multiplies bf16") {
  Job job;
  job.config = reference::tiny("qwen2");
  job.weights = reference::random_weights(job.config, 6, at::kBFloat16);
  for (Request& request : job.requests) request.given = prompt_of(30, static_cast<std::uint32_t>(request.first_index));
  const auto found = job.run({.max_slots = 8});
  const auto widen = [](at::Tensor& t) {
    if (t.defined()) t = t.to(at::kFloat);
  };
  widen(job.weights.embedding);
  widen(job.weights.lm_head);
  widen(job.weights.final_norm);
  for (model::LayerWeights& layer : job.weights.layers) {
    for (at::Tensor* t : {&layer.attention_norm, &layer.mlp_norm, &layer.q_norm, &layer.k_norm}) widen(*t);
    for (model::Linear* l : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj, &layer.gate_proj,
                             &layer.up_proj, &layer.down_proj}) {
      widen(l->weight);
      widen(l->bias);
    }
  }
  const auto expected = job.run({.max_slots = 8});
  const bool rounds = inference::cpu_kernels() == "avx512_bf16" || inference::cpu_kernels() == "amx_bf16";
  const bool one_order = !rounds && inference::cpu_kernels() != "avx512";  // of the sums with both formats
  double squares = 0, count = 0;
  for (std::size_t r = 0; r < found.size(); ++r)
    for (std::size_t j = 0; j < found[r].size(); ++j) {
      if (one_order) CHECK(same(found[r][j], expected[r][j]));
      REQUIRE(found[r][j].log_probs.size() == expected[r][j].log_probs.size());
      for (std::size_t n = 0; n < found[r][j].log_probs.size(); ++n, ++count)
        squares += std::pow(found[r][j].log_probs[n] - expected[r][j].log_probs[n], 2);
    }
  CHECK(std::sqrt(squares / count) < (rounds ? 0.2 : 1e-5));  // of log-probs down to −25
}

TEST_CASE("a stop id ends a completion and stays its last token") {
  const model::DecoderConfig config = reference::tiny();
  const model::DecoderWeights weights = reference::random_weights(config, 1);
  LocalEngine engine(config, weights);
  SamplingConfig sampling;
  sampling.temperature = 0.0;
  sampling.max_new_tokens = 20;
  const std::vector<Request> requests{{.prompt = prompt_of(9, 1)}};
  const Completion whole = engine.generate(requests, sampling, {})[0][0];
  CHECK(whole.finish == Finish::length);
  for (const std::size_t at : {0UL, 7UL}) {
    sampling.stop_ids = {TokenId{100}, whole.ids[at]};
    const std::size_t first =
        static_cast<std::size_t>(std::find(whole.ids.begin(), whole.ids.end(), whole.ids[at]) - whole.ids.begin());
    const Completion cut = engine.generate(requests, sampling, {})[0][0];
    CHECK(cut.finish == Finish::stop);
    CHECK(cut.ids ==
          std::vector<TokenId>(whole.ids.begin(), whole.ids.begin() + static_cast<std::ptrdiff_t>(first) + 1));
  }
}

TEST_CASE("a stop string ends a completion with the token that completes it; its ids and log-probs stay") {
  const model::DecoderConfig config = reference::tiny();
  const model::DecoderWeights weights = reference::random_weights(config, 1);
  // An id is "<id>", and none where it is an end.
  const auto texts = [](std::span<const TokenId>,
                        const SamplingConfig& sampling) -> std::function<inference::TextStream()> {
    return [ends = sampling.stop_ids] {
      return inference::TextStream{[ends](TokenId id) {
                                     const bool end = std::find(ends.begin(), ends.end(), id) != ends.end();
                                     return end ? std::string() : "<" + std::to_string(id) + ">";
                                   },
                                   [] { return std::string(); }};
    };
  };
  LocalEngine engine(config, weights, {.texts = texts}), mute(config, weights);
  SamplingConfig sampling{.max_new_tokens = 20};
  const std::vector<Request> requests{{.prompt = prompt_of(9, 1), .count = 3}, {.prompt = prompt_of(5, 2)}};
  const auto whole = engine.generate(requests, sampling, {1, 2});
  const std::vector<TokenId>& ids = whole[0][1].ids;
  sampling.stop_strings = {"nothing", std::to_string(ids[3]) + "><" + std::to_string(ids[4]) + ">"};
  const auto cut = engine.generate(requests, sampling, {1, 2});
  CHECK(cut[0][1].finish == Finish::stop);
  CHECK(cut[0][1].ids == std::vector<TokenId>(ids.begin(), ids.begin() + 5));
  CHECK(cut[0][1].log_probs == std::vector<float>(whole[0][1].log_probs.begin(), whole[0][1].log_probs.begin() + 5));
  CHECK(same(cut[1][0], whole[1][0]));
  // Not before its time; and what is given is given.
  sampling.min_new_tokens = 8;
  CHECK(engine.generate(requests, sampling, {1, 2})[0][1].ids.size() > 8);
  const std::vector<Request> given{{.prompt = prompt_of(9, 1), .given = ids}};
  CHECK(engine.generate(given, sampling, {1, 2})[0][0].ids == ids);
  CHECK(error_of([&] { (void)mute.generate(requests, sampling, {1, 2}); }) == "inference.11");
}

TEST_CASE("prompt and completion together end at max_position_embeddings") {
  model::DecoderConfig config = reference::tiny();
  config.max_position_embeddings = 50;
  const model::DecoderWeights weights = reference::random_weights(config, 1);
  LocalEngine engine(config, weights);
  SamplingConfig sampling;
  sampling.max_new_tokens = 100;
  const auto completions = engine.generate(
      std::vector<Request>{{.prompt = prompt_of(49, 1), .count = 2}, {.prompt = prompt_of(10, 1)}}, sampling, {});
  CHECK(completions[0][0].ids.size() == 1);
  CHECK(completions[0][1].ids.size() == 1);
  CHECK(completions[1][0].ids.size() == 40);
  CHECK(completions[1][0].finish == Finish::length);
  CHECK(error_of([&] { engine.generate(std::vector<Request>{{.prompt = prompt_of(50, 1)}}, sampling, {}); }) ==
        "inference.1");
}

TEST_CASE("what cannot be generated from is a numbered error, and the engine works afterwards") {
  const model::DecoderConfig config = reference::tiny();
  model::DecoderWeights weights = reference::random_weights(config, 1);
  LocalEngine engine(config, weights, {.max_slots = 2});
  SamplingConfig sampling;
  sampling.max_new_tokens = 5;
  const std::vector<Request> good{{.prompt = {1, 2, 3}, .count = 3}};
  const auto expected = engine.generate(good, sampling, {});
  const auto number = [&](std::vector<TokenId> prompt) {
    return error_of([&] { engine.generate(std::vector<Request>{{.prompt = std::move(prompt)}}, sampling, {}); });
  };
  CHECK(number({}) == "inference.2");
  CHECK(number({1, 101}) == "inference.3");
  CHECK(number({-1}) == "inference.3");
  SamplingConfig bad = sampling;
  bad.stop_ids = {500};
  CHECK(error_of([&] { engine.generate(good, bad, {}); }) == "inference.3");
  bad = sampling;
  bad.temperature = -1;
  CHECK(error_of([&] { engine.generate(good, bad, {}); }) == "inference.4");
  for (const int threads : {1, 2}) {
    LocalEngine other(config, weights, {.max_slots = 2, .threads = threads});
    at::Tensor value = weights.final_norm.clone();
    weights.final_norm.fill_(std::numeric_limits<float>::quiet_NaN());
    CHECK(error_of([&] { other.generate(good, sampling, {}); }) == "inference.5");
    weights.final_norm.copy_(value);
    CHECK(same(other.generate(good, sampling, {})[0][2], expected[0][2]));
  }
  for (const std::function<at::Tensor(const at::Tensor&)>& damage :
       std::vector<std::function<at::Tensor(const at::Tensor&)>>{
           [](const at::Tensor& t) { return t.to(at::kDouble); }, [](const at::Tensor& t) { return t.slice(0, 1); },
           [](const at::Tensor& t) { return t.t(); }, [](const at::Tensor&) { return at::Tensor(); }}) {
    const at::Tensor value = weights.layers[1].q_proj.weight;
    weights.layers[1].q_proj.weight = damage(value);
    CHECK(error_of([&] { engine.generate(good, sampling, {}); }) == "inference.6");
    weights.layers[1].q_proj.weight = value;
  }
  CHECK(error_of([&] { LocalEngine(config, weights, {.max_slots = 0}); }) == "inference.7");
  CHECK(error_of([&] { LocalEngine(config, weights, {.prefill_rows = -1}); }) == "inference.7");
  CHECK(error_of([&] { LocalEngine(config, weights, {.threads = -1}); }) == "inference.7");
  CHECK(same(engine.generate(good, sampling, {})[0][2], expected[0][2]));
}

TEST_CASE("no requests, and requests for no completions, give nothing") {
  const model::DecoderConfig config = reference::tiny();
  const model::DecoderWeights weights = reference::random_weights(config, 1);
  LocalEngine engine(config, weights, {.max_slots = 2});
  SamplingConfig sampling;
  sampling.max_new_tokens = 3;
  CHECK(engine.generate(std::vector<Request>{}, sampling, {}).empty());
  const auto completions = engine.generate(
      std::vector<Request>{
          {.prompt = {1}, .count = 0}, {.prompt = {2}, .count = 2}, {.prompt = {3}, .count = 0}, {.prompt = {4}}},
      sampling, {});
  REQUIRE(completions.size() == 4);
  CHECK(completions[0].empty());
  CHECK(completions[1].size() == 2);
  CHECK(completions[1][1].ids.size() == 3);
  CHECK(completions[2].empty());
  CHECK(completions[3][0].ids.size() == 3);
}

TEST_CASE("tokens stream as they are drawn") {
  const Job job;
  LocalEngine engine(job.config, job.weights, {.max_slots = 4});
  std::vector<std::vector<Completion>> streamed(job.requests.size());
  for (std::size_t r = 0; r < streamed.size(); ++r) streamed[r].resize(static_cast<std::size_t>(job.requests[r].count));
  inference::GenerateHooks hooks;
  hooks.on_token = [&](const inference::GenerateHooks::Token& token) {
    Completion& c = streamed[token.request][static_cast<std::size_t>(token.completion)];
    c.ids.push_back(token.id);
    c.log_probs.push_back(token.log_prob);
  };
  const auto completions = engine.generate(job.requests, job.sampling, job.key, hooks);
  for (std::size_t r = 0; r < streamed.size(); ++r)
    for (std::size_t j = 0; j < streamed[r].size(); ++j) {
      CHECK(streamed[r][j].ids == completions[r][j].ids);
      CHECK(streamed[r][j].log_probs == completions[r][j].log_probs);
    }
}

TEST_CASE("a cancelled call keeps what was drawn and marks what was not finished") {
  const Job job;
  LocalEngine engine(job.config, job.weights, {.max_slots = 5});
  const auto expected = engine.generate(job.requests, job.sampling, job.key);
  inference::GenerateHooks hooks;
  int passes = 0;
  hooks.cancelled = [&] { return ++passes > 20; };
  const auto completions = engine.generate(job.requests, job.sampling, job.key, hooks);
  CHECK(passes == 21);
  std::size_t aborted = 0, untouched = 0, partial = 0;
  for (std::size_t r = 0; r < expected.size(); ++r)
    for (std::size_t j = 0; j < expected[r].size(); ++j) {
      const Completion& c = completions[r][j];
      if (c.finish != Finish::aborted) {
        CHECK(same(c, expected[r][j]));
        continue;
      }
      ++aborted;
      (c.ids.empty() ? untouched : partial) += 1;
      REQUIRE(c.ids.size() <= expected[r][j].ids.size());
      CHECK(std::equal(c.ids.begin(), c.ids.end(), expected[r][j].ids.begin()));
    }
  CHECK(partial == 5);
  CHECK(untouched > 0);
  const auto again = engine.generate(job.requests, job.sampling, job.key);
  CHECK(same(again[0][0], expected[0][0]));
}

TEST_CASE("a step allocates nothing once the engine is warm") {
  Job job;
  for (const auto& [threads, quantization] :
       {std::pair(1, Quantization::none), {2, Quantization::none}, {2, Quantization::int8}}) {
    LocalEngine engine(job.config, job.weights,
                       {.max_slots = 16, .prefill_rows = 16, .threads = threads, .quantization = quantization});
    SamplingConfig plain;
    plain.max_new_tokens = 45;
    for (const SamplingConfig& sampling : {plain, job.sampling}) {
      engine.generate(job.requests, sampling, job.key);
      std::size_t start = 0, most = 0;
      int passes = 0;
      inference::GenerateHooks hooks;
      hooks.cancelled = [&] {
        const std::size_t now = allocations.load();
        if (passes++ > 0) most = std::max(most, now - start);
        start = allocations.load();
        return false;
      };
      const auto warm = engine.generate(job.requests, sampling, job.key, hooks);
      CHECK(passes > 40);
      CHECK(most == 0);
      engine.release_memory();
      CHECK(engine.counts().pages_kept == 0);
      passes = 0;
      const auto again = engine.generate(job.requests, sampling, job.key, hooks);
      CHECK(most > 0);  // pages: their memory was given back
      for (std::size_t r = 0; r < warm.size(); ++r) CHECK(same(warm[r][0], again[r][0]));
    }
  }
}
