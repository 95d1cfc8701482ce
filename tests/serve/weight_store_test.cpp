#include <rlalgo/serve/weight_store.hpp>

#include <fstream>
#include <string>
#include <vector>

#include <rlalgo/model/adapter_files.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include "serve/served.hpp"

using namespace rlalgo;
using serve::Engine;
using serve::WeightStore;

namespace {

struct Bench {
  std::shared_ptr<model::Decoder> decoder = served::decoder();
  Engine engine{decoder->config(), {.engine = {.threads = 1}}, {}};
  WeightStore store{decoder, engine};
  support::ScratchDirectory scratch;

  // The log-probs of given tokens under a handle.
  std::vector<float> score(const inference::Forward::WeightsHandle& weights) {
    std::vector<float> out;
    engine.call([&](inference::DecoderEngine& e) {
      inference::RequestSpec spec{.prompt = {3, 5, 7}, .given = {11, 13, 17, 19}};
      spec.weights = weights;
      spec.on_end = [&](inference::RequestId, inference::RequestResult&& result) {
        out = result.completions[0].completion.log_probs;
      };
      e.scheduler().submit(std::move(spec));
      e.scheduler().drain();
    });
    return out;
  }
  std::string adapter(const std::string& name, std::uint64_t seed) {
    served::write_adapter(scratch.path() / name, seed);
    return (scratch.path() / name).string();
  }
};

}  // namespace

TEST_CASE("adapters come, are replaced and go; who holds the old one keeps it") {
  Bench bench;
  const auto base = bench.score(bench.store.base());
  bench.store.load_adapter("a", bench.adapter("v0", 1), false);
  const auto first = bench.store.find("a");
  REQUIRE(first);
  const auto under_first = bench.score(first);
  CHECK(under_first != base);
  CHECK(bench.score(bench.store.base()) == base);
  // As the model with the adapter on it says.
  model::Decoder adapted(bench.decoder->hf_config(), bench.decoder->weights());
  model::load_adapter(adapted, bench.scratch.path() / "v0");
  inference::Forward::WeightsHandle direct;
  bench.engine.call([&](inference::DecoderEngine& e) { direct = e.view(adapted.weights()); });
  CHECK(bench.score(direct) == under_first);

  CHECK(support::number_raised_by([&] { bench.store.load_adapter("a", bench.adapter("v1", 2), false); }) == "serve.16");
  bench.store.load_adapter("a", bench.adapter("v1", 2), true);
  CHECK(bench.score(bench.store.find("a")) != under_first);
  CHECK(bench.score(first) == under_first);
  CHECK(bench.store.find("a")->version > first->version);
  CHECK(bench.store.adapters().size() == 1);
  bench.store.unload_adapter("a");
  CHECK(!bench.store.find("a"));
  CHECK(support::number_raised_by([&] { bench.store.unload_adapter("a"); }) == "serve.5");
}

TEST_CASE("files that cannot be used are refused, and what is loaded stays") {
  Bench bench;
  const std::string good = bench.adapter("good", 1);
  bench.store.load_adapter("a", good, false);
  const auto held = bench.store.find("a");
  const auto load = [&](const std::string& path) {
    return support::number_raised_by([&] { bench.store.load_adapter("a", path, true); });
  };
  CHECK(load("/no/such/folder") == "serve.18");
  CHECK(load(bench.scratch.path().string()) == "serve.18");  // no adapter_config.json
  const std::string cut = bench.adapter("cut", 3);
  std::filesystem::resize_file(std::filesystem::path(cut) / "adapter_model.safetensors", 100);
  CHECK(load(cut) == "serve.18");
  const std::string broken = bench.adapter("broken", 3);
  std::ofstream(std::filesystem::path(broken) / "adapter_config.json") << "{";
  CHECK(load(broken) == "serve.18");
  // Values that are not finite.
  const auto adapted = served::decoder();
  model::load_adapter(*adapted, good);
  model::adapter_tensors(*adapted)[0].second.fill_(std::numeric_limits<float>::quiet_NaN());
  model::save_adapter(*adapted, bench.scratch.path() / "nan", "tiny");
  CHECK(load((bench.scratch.path() / "nan").string()) == "serve.18");
  CHECK(bench.store.find("a") == held);
}

TEST_CASE("an update is applied whole, to the base and under adapters, or not at all") {
  Bench bench;
  bench.store.load_adapter("a", bench.adapter("v0", 1), false);
  const auto base = bench.score(bench.store.base()), adapted = bench.score(bench.store.find("a"));
  const auto before = bench.store.base();
  const auto norm = [&](double factor) {
    for (const auto& [name, value] : bench.store.named_tensors())
      if (name == "model.norm.weight") return value.detach().mul(factor).clone();
    return tensor::Tensor();
  };
  const auto wrong = tensor::zeros({3}, at::TensorOptions().dtype(at::kFloat));
  CHECK(support::number_raised_by([&] {
          bench.store.update({{"model.norm.weight", norm(2)}, {"model.norm.weights", wrong}});
        }) == "serve.19");
  CHECK(support::number_raised_by([&] {
          bench.store.update({{"model.norm.weight", norm(2)}, {"lm_head.weight", wrong}});
        }) == "serve.19");
  CHECK(bench.score(bench.store.base()) == base);
  CHECK(bench.store.version_name() == "1");  // the adapter's

  bench.store.update({{"model.norm.weight", norm(2)}});
  CHECK(bench.score(bench.store.base()) != base);
  CHECK(bench.score(bench.store.find("a")) != adapted);
  CHECK(bench.score(before) == base);
  CHECK(bench.store.base()->version == 2);
  bench.store.update({{"model.norm.weight", norm(0.5)}});
  CHECK(bench.score(bench.store.base()) == base);
  CHECK(bench.score(bench.store.find("a")) == adapted);
  bench.store.name_version("v8");
  CHECK(bench.store.version_name() == "v8");
}

TEST_CASE("the output of a tied model follows its embedding") {
  Bench bench;
  REQUIRE(bench.decoder->config().tied_embeddings);
  const auto changed = bench.decoder->weights().embedding.detach().mul(0.5).clone();
  auto other = bench.decoder->weights();
  other.embedding = other.lm_head = changed;
  inference::Forward::WeightsHandle direct;
  bench.engine.call([&](inference::DecoderEngine& e) { direct = e.view(other); });
  const auto expected = bench.score(direct);
  bench.store.update({{"model.embed_tokens.weight", changed}});
  CHECK(bench.score(bench.store.base()) == expected);
}

TEST_CASE("weights of this process take the place of all that there were, adapter included") {
  Bench bench;
  bench.store.load_adapter("a", bench.adapter("v0", 1), false);
  const auto base = bench.score(bench.store.base()), adapted = bench.score(bench.store.find("a"));
  const auto before = bench.store.base();
  auto other = std::make_shared<model::DecoderWeights>(bench.decoder->weights());
  other->final_norm = other->final_norm.detach().mul(2.0).clone();
  bench.store.replace(other, "v7");
  CHECK(bench.store.version_name() == "v7");
  CHECK(bench.store.version() == 2);
  CHECK(bench.score(bench.store.base()) != base);
  CHECK(bench.score(bench.store.find("a")) != adapted);
  CHECK(bench.score(before) == base);
  bench.store.replace(std::make_shared<model::DecoderWeights>(bench.decoder->weights()));
  CHECK(bench.store.version_name() == "3");
  CHECK(bench.score(bench.store.base()) == base);
  CHECK(bench.score(bench.store.find("a")) == adapted);
  const WeightStore begun(bench.decoder, bench.engine, other);
  CHECK(bench.score(begun.base()) != base);
}
