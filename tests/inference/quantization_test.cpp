// Engines whose weights are in 8 bits: near the policy that they are made of, and as sure of their bits as the others.
#include <rlalgo/inference/quantization.hpp>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <rlalgo/inference/cpu_kernels.hpp>
#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/detail/decoder_forward.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/model/weights.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using inference::EngineConfig;
using inference::LocalEngine;
using inference::Quantization;
using inference::Request;
using inference::SamplingConfig;

namespace {

constexpr Quantization int8 = Quantization::int8;

struct Job {
  explicit Job(const char* type = "qwen3", at::ScalarType dtype = at::kFloat)
      : config(reference::tiny(type)), weights(reference::random_weights(config, 5, dtype)) {
    for (std::uint32_t r = 0; r < 6; ++r) {
      Request request{.count = 2, .first_index = 2 * r};
      for (std::uint32_t i = 0; i < 3 + 9 * r; ++i)
        request.prompt.push_back(static_cast<data::TokenId>((i * 29 + r) % 101));
      requests.push_back(request);
    }
  }
  [[nodiscard]] auto run(const EngineConfig& engine) const {
    return LocalEngine(config, weights, engine).generate(requests, sampling, {.seed = 3});
  }

  model::DecoderConfig config;
  model::DecoderWeights weights;
  std::vector<Request> requests;
  SamplingConfig sampling{.max_new_tokens = 30};
};

using Completions = std::vector<std::vector<data::Completion>>;

bool same(const Completions& a, const Completions& b) {
  bool all = a.size() == b.size();
  for (std::size_t r = 0; all && r < a.size(); ++r)
    for (std::size_t j = 0; all && j < a[r].size(); ++j)
      all = a[r][j].ids == b[r][j].ids && a[r][j].log_probs == b[r][j].log_probs;
  return all;
}

const inference::detail::DecoderView& view_of(const inference::Forward::WeightsHandle& handle) {
  return static_cast<const inference::detail::DecoderWeightsView&>(*handle).view;
}

}  // namespace

TEST_CASE("quantizations have names") {
  CHECK(inference::quantization_named("none", "--quantization") == Quantization::none);
  CHECK(inference::quantization_named("int8", "--quantization") == int8);
  CHECK(inference::quantization_named("fp8", "--quantization") == Quantization::fp8);
  for (const char* name : {"", "int4", "INT8", "fp8_e4m3", "fp4"})
    CHECK(support::number_raised_by([&] { (void)inference::quantization_named(name, "--quantization"); }) ==
          "inference.18");
}

TEST_CASE("log-probs of weights in 8 bits are near those of the weights themselves, for every architecture and type") {
  for (const char* type : {"llama", "qwen2", "qwen3", "experts"})
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const Job job(type, dtype);
      const Completions drawn = job.run({.quantization = int8});
      LocalEngine exact(job.config, job.weights, {.cache_element = inference::CacheElement::float32});
      double apart = 0, count = 0;
      for (std::size_t r = 0; r < drawn.size(); ++r)
        for (const data::Completion& one : drawn[r]) {
          Request given{.prompt = job.requests[r].prompt, .given = one.ids};
          const data::Completion scored = exact.generate(std::vector{given}, job.sampling, {})[0][0];
          REQUIRE(scored.ids == one.ids);
          for (std::size_t t = 0; t < one.ids.size(); ++t, ++count)
            apart += std::abs(static_cast<double>(one.log_probs[t]) - scored.log_probs[t]);
        }
      INFO(type << ' ' << dtype);
      CHECK(count > 300);
      CHECK(apart / count > 1e-4);  // another policy
      // Of a model of large random weights; a token that is near the edge between two experts may pass the other one.
      CHECK(apart / count < (std::string_view(type) == "experts" ? 0.4 : 0.2));
    }
}

TEST_CASE("slots, prefill, threads and neighbours change no bit of what weights in 8 bits give") {
  const Job job(GENERATE("qwen3", "experts"));
  const Completions expected = job.run({.max_slots = 1, .prefill_rows = 1, .threads = 1, .quantization = int8});
  for (const EngineConfig& engine : {EngineConfig{.max_slots = 12, .prefill_rows = 64, .threads = 1},
                                     EngineConfig{.max_slots = 5, .prefill_rows = 7, .threads = 2},
                                     EngineConfig{.max_slots = 64, .prefill_rows = 256, .threads = 3}}) {
    EngineConfig quantized = engine;
    quantized.quantization = int8;
    CHECK(same(job.run(quantized), expected));
  }
}

TEST_CASE("weights that change in place are quantized anew, and only then") {
  Job job;
  LocalEngine engine(job.config, job.weights, {.keep_prefixes = true, .quantization = int8});
  const auto call = [&] { return engine.generate(job.requests, job.sampling, {.seed = 3}); };
  const Completions before = call();
  CHECK(same(call(), before));
  {
    const at::NoGradGuard guard;
    job.weights.layers[1].up_proj.weight.mul_(-0.5);
    job.weights.embedding.mul_(1.1);  // the head, too
  }
  engine.weights_changed();
  const Completions after = call();
  CHECK_FALSE(same(after, before));
  CHECK(same(after, job.run({.quantization = int8})));
}

TEST_CASE("snapshots in 8 bits give what the weights of their version do") {
  Job job;
  at::NoGradGuard guard;
  model::DecoderConfig config = job.config;
  model::visit_weights(config, job.weights,
                       [](const std::string&, at::Tensor& value, const auto&, auto) { value.requires_grad_(); });
  const auto snapshots = std::make_shared<inference::WeightSnapshots>(job.config, job.weights);
  inference::SnapshotEngine engine(snapshots, {.quantization = int8});
  for (std::int64_t version = 0; version < 4; ++version) {
    job.weights.layers[2].down_proj.weight.mul_(0.9);
    snapshots->publish(version);
    const Completions expected = job.run({.quantization = int8});
    job.weights.layers[2].down_proj.weight.mul_(0.9);  // not published
    for (int call = 0; call < 2; ++call)
      CHECK(same(engine.generate(job.requests, job.sampling, {.seed = 3}), expected));
  }
}

TEST_CASE("adapters over one base share its weights in 8 bits while somebody has them") {
  const Job job;
  inference::DecoderEngine engine(job.config, {.quantization = int8});
  auto base = engine.view(job.weights);
  model::DecoderWeights adapted = job.weights;
  model::Linear& map = adapted.layers[0].q_proj;
  map.lora.a = at::randn({4, map.weight.size(1)}) * 0.2;
  map.lora.b = at::randn({map.weight.size(0), 4}) * 0.2;
  map.lora.scale = 0.5;
  adapted.layers[1].q_proj.weight = adapted.layers[1].q_proj.weight.clone();
  auto other = engine.view(adapted);
  const auto at = [](const auto& view, std::size_t layer) { return view_of(view).layers[layer].q_proj.packed; };
  CHECK(at(base, 0) != nullptr);
  CHECK(at(base, 0) == at(other, 0));
  CHECK(at(base, 1) != at(other, 1));
  const std::byte first = at(base, 0)[0];
  base = other = nullptr;
  {
    const at::NoGradGuard guard;
    const at::Tensor& weight = job.weights.layers[0].q_proj.weight;
    weight.neg_();
  }
  const auto anew = engine.view(job.weights);
  CHECK(std::to_integer<int>(at(anew, 0)[0]) - 128 == 128 - std::to_integer<int>(first));
  CHECK(first != std::byte{128});
}

TEST_CASE("packed weights in bfloat16 give log-probs to rounding, and no neighbour changes a bit") {
  const Job job("qwen3", at::kBFloat16);
  const EngineConfig packed{.max_slots = 12, .threads = 2, .pack_weights = true};
  const Completions drawn = job.run(packed);
  EngineConfig alone = packed;
  alone.max_slots = 1, alone.prefill_rows = 3, alone.threads = 1;
  CHECK(same(job.run(alone), drawn));
  inference::DecoderEngine engine(job.config, packed);
  CHECK((view_of(engine.view(job.weights)).layers[0].down_proj.packed != nullptr) == inference::packs_bfloat16());
  CHECK(view_of(inference::DecoderEngine(job.config).view(job.weights)).layers[0].down_proj.packed == nullptr);
  inference::LocalEngine plain(job.config, job.weights,
                               {.cache_element = packed.for_weights(job.weights).cache_element});
  double apart = 0, count = 0;
  for (std::size_t r = 0; r < drawn.size(); ++r)
    for (const data::Completion& one : drawn[r]) {
      const Request given{.prompt = job.requests[r].prompt, .given = one.ids};
      const data::Completion scored = plain.generate(std::vector{given}, job.sampling, {})[0][0];
      for (std::size_t t = 0; t < one.ids.size(); ++t, ++count)
        apart += std::abs(static_cast<double>(one.log_probs[t]) - scored.log_probs[t]);
    }
  CHECK(apart / count < 0.05);  // sums in another order are rounded to other neighbours in bfloat16
}
