#include <support/catch.hpp>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include <rlalgo/inference/decoder_engine.hpp>

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
