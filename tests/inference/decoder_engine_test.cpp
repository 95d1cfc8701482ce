#include <support/catch.hpp>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/model/load.hpp>

#include <support/decoders.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using data::TokenId;
using inference::DecoderEngine;
using inference::EngineConfig;
using inference::RequestId;
using inference::RequestResult;
using inference::RequestSpec;

namespace {

struct Models {
  model::DecoderConfig config = reference::tiny("qwen3");
  model::DecoderWeights base = reference::random_weights(config, 4), first = base, second = base;
  Models() {
    for (model::DecoderWeights* weights : {&first, &second})
      for (model::LayerWeights& layer : weights->layers)
        for (model::Linear* map : {&layer.q_proj, &layer.v_proj, &layer.down_proj}) {
          const std::int64_t rank = weights == &first ? 4 : 9;
          map->lora.a = at::randn({rank, map->weight.size(1)}) * 0.2;
          map->lora.b = at::randn({map->weight.size(0), rank}) * 0.2;
          map->lora.scale = 0.5;
        }
  }
  [[nodiscard]] const model::DecoderWeights& of(std::size_t which) const {
    return which == 0 ? base : which == 1 ? first : second;
  }
};

// Bytes of one page of keys and values of the tiny model.
std::size_t page_bytes(const model::DecoderConfig& c) {
  return inference::KvCache(c.layers, c.kv_heads, c.head_dim).page_bytes();
}

}  // namespace

TEST_CASE("base model and adapters in one engine, coming and going, with little memory: each as if alone") {
  const Models models;
  std::mt19937 random(7);
  for (const int threads : {1, 2}) {
    DecoderEngine engine(
        models.config,
        {.max_slots = 5, .prefill_rows = 20, .threads = threads, .cache_bytes = 9 * page_bytes(models.config)});
    std::vector<inference::Forward::WeightsHandle> views;
    for (std::size_t w = 0; w < 3; ++w) views.push_back(engine.view(models.of(w), static_cast<std::int64_t>(w)));
    struct Job {
      RequestSpec spec;
      std::size_t weights = 0;
      bool cancelled = false;
    };
    std::map<RequestId, Job> jobs;
    std::map<RequestId, RequestResult> ended;
    while (jobs.size() < 20 || !engine.scheduler().idle()) {
      if (jobs.size() < 20 && random() % 3 == 0) {
        Job job;
        const auto length = static_cast<std::uint32_t>(1 + random() % 70);
        for (std::uint32_t i = 0; i < length; ++i) job.spec.prompt.push_back(static_cast<TokenId>(i * 5 % 101));
        job.spec.count = 1 + static_cast<std::int64_t>(random() % 3);
        job.spec.sampling.max_new_tokens = 1 + static_cast<std::int64_t>(random() % 60);
        job.spec.sampling.temperature = 0.5 + 0.25 * static_cast<double>(random() % 3);
        if (random() % 2 == 0) job.spec.sampling.top_k = 9;
        job.spec.key = {.seed = random()};
        job.weights = random() % 3;
        RequestSpec spec = job.spec;
        spec.weights = views[job.weights];
        spec.on_end = [&](RequestId id, RequestResult&& result) { ended[id] = std::move(result); };
        jobs[engine.scheduler().submit(std::move(spec))] = std::move(job);
      }
      if (!jobs.empty() && random() % 50 == 0) {
        auto at = std::next(jobs.begin(), static_cast<std::ptrdiff_t>(random() % jobs.size()));
        at->second.cancelled = engine.scheduler().cancel(at->first) || at->second.cancelled;
      }
      engine.scheduler().step();
    }
    CHECK(engine.scheduler().counts().preemptions > 0);
    CHECK(engine.scheduler().counts().cached_tokens > 0);
    for (auto& [id, job] : jobs) {
      if (job.cancelled) continue;
      DecoderEngine alone(models.config, {.max_slots = 4, .prefill_rows = 200, .threads = 1});
      RequestResult expected;
      job.spec.weights = alone.view(models.of(job.weights));
      job.spec.on_end = [&](RequestId, RequestResult&& result) { expected = std::move(result); };
      alone.scheduler().submit(job.spec);
      alone.scheduler().drain();
      for (std::size_t j = 0; j < expected.completions.size(); ++j) {
        const data::Completion &a = ended[id].completions[j].completion, &b = expected.completions[j].completion;
        REQUIRE(a.ids == b.ids);
        REQUIRE(a.log_probs == b.log_probs);
        CHECK(a.weights_version == static_cast<std::int64_t>(job.weights));
      }
    }
  }
}

TEST_CASE(
    "a model that carries a state: prefixes found again, pages short, few states saved, and each request as if alone") {
  const auto model =
      model::random_decoder(model::parse_hf_config(rlalgo::support::small_config("qwen3_5_text"), "test"), 5);
  const model::DecoderConfig& config = model->config();
  const std::size_t page = inference::KvCache(config, inference::CacheElement::float32).page_bytes();
  const std::size_t state = static_cast<std::size_t>(config.carried()) * sizeof(float);
  const auto run = [&](DecoderEngine& engine, RequestSpec spec) {
    RequestResult result;
    spec.on_end = [&](RequestId, RequestResult&& one) { result = std::move(one); };
    engine.scheduler().submit(std::move(spec));
    engine.scheduler().drain();
    return result;
  };
  for (const std::size_t saved : {std::size_t{0}, state, 3 * state, 100 * state}) {
    std::mt19937 random(11);
    DecoderEngine engine(
        config, {.max_slots = 4, .prefill_rows = 20, .threads = 2, .cache_bytes = 10 * page, .saved_bytes = saved});
    const auto view = engine.view(model->weights());
    std::map<RequestId, RequestSpec> jobs;
    std::map<RequestId, RequestResult> ended;
    while (jobs.size() < 30 || !engine.scheduler().idle()) {
      if (jobs.size() < 30 && random() % 4 == 0) {
        RequestSpec spec;
        const auto length = static_cast<std::uint32_t>(1 + random() % 110),
                   salt = static_cast<std::uint32_t>(random() % 3);
        for (std::uint32_t i = 0; i < length; ++i)
          spec.prompt.push_back(static_cast<TokenId>((i * 5 + (i > 40 ? salt * i : 0)) % 23));
        spec.count = 1 + static_cast<std::int64_t>(random() % 3);
        spec.sampling.max_new_tokens = 1 + static_cast<std::int64_t>(random() % 70);
        spec.key = {.seed = random()};
        RequestSpec submitted = spec;
        submitted.weights = view;
        submitted.on_end = [&](RequestId id, RequestResult&& result) { ended[id] = std::move(result); };
        jobs[engine.scheduler().submit(std::move(submitted))] = std::move(spec);
      }
      engine.scheduler().step();
    }
    INFO(saved / state << " states saved at most");
    CHECK(engine.scheduler().counts().preemptions > 0);
    CHECK((engine.scheduler().counts().cached_tokens > 0) == (saved > 0));
    for (auto& [id, spec] : jobs) {
      DecoderEngine alone(config, {.max_slots = 4, .prefill_rows = 200, .threads = 1});
      spec.weights = alone.view(model->weights());
      const RequestResult expected = run(alone, spec);
      for (std::size_t j = 0; j < expected.completions.size(); ++j) {
        REQUIRE(ended[id].completions[j].completion.ids == expected.completions[j].completion.ids);
        REQUIRE(ended[id].completions[j].completion.log_probs == expected.completions[j].completion.log_probs);
      }
    }
  }
  // What was drawn is found again with the next message of a conversation, and so is where two prompts part.
  DecoderEngine engine(config, {.max_slots = 4, .prefill_rows = 64, .threads = 1});
  engine.scheduler().set_weights(engine.view(model->weights()));
  const auto prompt_of = [](std::uint32_t length, std::uint32_t parts, std::uint32_t salt) {
    std::vector<TokenId> out;
    for (std::uint32_t i = 0; i < length; ++i)
      out.push_back(static_cast<TokenId>((i * 3 + (i < parts ? 0 : salt + i * i)) % 23));
    return out;
  };
  RequestSpec first{.prompt = prompt_of(50, 50, 0), .sampling = {.max_new_tokens = 60}};
  const auto drawn = run(engine, first).completions[0].completion.ids;
  RequestSpec next{.prompt = first.prompt, .sampling = {.max_new_tokens = 2}};
  next.prompt.insert(next.prompt.end(), drawn.begin(), drawn.end());
  next.prompt.insert(next.prompt.end(), {1, 2, 3});
  CHECK(run(engine, next).cached_tokens == 96);  // of 110 − 1 that were computed, by pages of 32
  engine.scheduler().reset_prefix_cache();
  CHECK(run(engine, {.prompt = prompt_of(130, 70, 1), .sampling = {.max_new_tokens = 1}}).cached_tokens == 0);
  CHECK(run(engine, {.prompt = prompt_of(130, 70, 2), .sampling = {.max_new_tokens = 1}}).cached_tokens == 64);
  // All of a prompt in one pass: its last page alone, until another prompt parts from it. There is room for all that
  // prompts leave behind; without it (cache_bytes 0) each takes the pages that the one before it has left.
  DecoderEngine wide(config, {.max_slots = 4, .prefill_rows = 200, .threads = 1, .cache_bytes = 16 * page});
  wide.scheduler().set_weights(wide.view(model->weights()));
  for (const auto& [salt, found] : {std::pair(1U, 0), std::pair(2U, 0), std::pair(3U, 64), std::pair(2U, 128)})
    CHECK(run(wide, {.prompt = prompt_of(130, 70, salt), .sampling = {.max_new_tokens = 1}}).cached_tokens == found);
}

TEST_CASE("the model's end ids end requests that do not ignore them") {
  const Models models;
  std::vector<TokenId> all;
  for (TokenId id = 0; id < 101; ++id) all.push_back(id);
  DecoderEngine engine(models.config, {}, nullptr, all);
  engine.scheduler().set_weights(engine.view(models.base));
  for (const bool ignore : {false, true}) {
    std::size_t length = 0;
    RequestSpec spec{.prompt = {1, 2, 3}, .sampling = {.max_new_tokens = 9}, .ignore_eos = ignore};
    spec.on_end = [&](RequestId, RequestResult&& result) { length = result.completions[0].completion.ids.size(); };
    engine.scheduler().submit(std::move(spec));
    engine.scheduler().drain();
    CHECK(length == (ignore ? 9 : 1));
  }
}
