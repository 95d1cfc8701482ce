#include <rlalgo/assembly/completions.hpp>

#include <filesystem>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/assembly/dialogue.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/serve/server.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace rlalgo::support {
extern const char* const test_dir;
}

TEST_CASE("what is computed of a prompt serves later calls under one version of the weights, and no other") {
  const auto model = assembly::LanguageModel::load(
      (std::filesystem::path(support::test_dir).parent_path() / "examples/quickstart/model").string());
  assembly::Completions source(model, assembly::Engine());
  sync::AnySync sync = source.sync();
  std::vector<inference::Request> requests;
  for (std::int32_t r = 0; r < 3; ++r) {
    requests.push_back({.prompt = {}, .first_index = static_cast<std::uint64_t>(r)});
    for (std::int32_t t = 0; t < 70; ++t) requests.back().prompt.push_back((7 * t + r * t * t) % 400);
  }
  const inference::SamplingConfig sampling{.max_new_tokens = 12};
  const auto agrees = [&] {  // with an engine that has seen nothing before
    inference::LocalEngine fresh(model.decoder->config(), model.decoder->weights());
    const auto expected = fresh.generate(requests, sampling, {.seed = 1});
    const auto found = source.generator().generate(requests, sampling, {.seed = 1});
    bool same = true;
    for (std::size_t r = 0; r < requests.size(); ++r)
      same = same && found[r][0].ids == expected[r][0].ids && found[r][0].log_probs == expected[r][0].log_probs;
    return same;
  };
  const auto change = [&] {
    const c10::NoGradGuard guard;
    for (const model::Parameter& p : model.decoder->parameters()) p.value.mul_(1.02);
  };
  model.decoder->set_trained(true);
  sync.publish(0);
  CHECK(agrees());
  for (inference::Request& request : requests) request.prompt.insert(request.prompt.end(), 30, 5);
  CHECK(agrees());
  sync.publish(0);
  change();
  CHECK_FALSE(agrees());  // the version is still 0: prompts are not computed again
  sync.publish(1);
  CHECK(agrees());
}

namespace {

assembly::LanguageModel quickstart() {
  return assembly::LanguageModel::load(
      (std::filesystem::path(support::test_dir).parent_path() / "examples/quickstart/model").string());
}

// A trainer's model, and a server of this program that began with the same weights.
struct Pair {
  assembly::LanguageModel trained = quickstart(), served = quickstart();
  support::ScratchDirectory scratch;
  serve::GenerationServer server{
      {.name = "m", .root = "m", .decoder = served.decoder, .tokenizer = served.tokenizer, .stop_ids = served.stop_ids},
      {.http = {.port = 0}, .engine = {.engine = {.threads = 1}}, .report_seconds = 0}};

  [[nodiscard]] assembly::Server remote() const {
    return {.url = server.url(), .call_seconds = 60, .start_seconds = 10, .directory = scratch.path()};
  }

  // Generates on both sides with the weights of `version`; whether every bit is the same.
  void check_same(assembly::Completions& here, assembly::Completions& there, std::int64_t version) const {
    std::vector<inference::Request> requests;
    for (std::int32_t r = 0; r < 4; ++r) {
      requests.push_back({.prompt = {}, .count = r == 3 ? 2 : 3, .first_index = static_cast<std::uint64_t>(7 * r)});
      for (std::int32_t t = 0; t < 20; ++t) requests.back().prompt.push_back((7 * t + r * t * t) % 400);
    }
    sync::AnySync local = here.sync(), remote = there.sync();
    local.publish(version);
    CHECK(remote.publish(version).status == sync::Published::Status::sent);
    const inference::SamplingConfig sampling{
        .temperature = 0.9, .top_p = 0.95, .top_k = 50, .max_new_tokens = 12, .stop_ids = trained.stop_ids};
    const inference::DrawKey key{.seed = 11, .step = static_cast<std::uint64_t>(version)};
    const auto expected = here.generator().generate(requests, sampling, key);
    const auto found = there.generator().generate(requests, sampling, key);
    for (std::size_t r = 0; r < requests.size(); ++r) {
      REQUIRE(found[r].size() == expected[r].size());
      for (std::size_t j = 0; j < found[r].size(); ++j) {
        CHECK(found[r][j].ids == expected[r][j].ids);
        CHECK(found[r][j].log_probs == expected[r][j].log_probs);
        CHECK(found[r][j].finish == expected[r][j].finish);
        CHECK(found[r][j].weights_version == version);
      }
    }
  }
  void change_weights() const {
    const c10::NoGradGuard guard;
    for (const model::Parameter& p : trained.decoder->parameters()) p.value.mul_(1.03);
  }
};

}  // namespace

TEST_CASE("a server of this program draws what this process would, with full weights that changed") {
  Pair pair;
  pair.trained.decoder->set_trained(true);
  assembly::Completions here(pair.trained, assembly::Engine()), there(pair.trained, pair.remote());
  pair.check_same(here, there, 0);
  pair.change_weights();
  pair.check_same(here, there, 1);
}

TEST_CASE("it does so with an adapter") {
  Pair pair;
  model::LoraConfig adapter;
  adapter.r = 2;
  adapter.alpha = 32;
  adapter.target_modules = {"q_proj", "down_proj"};
  adapter.init = model::LoraInit::random;
  model::attach_lora(*pair.trained.decoder, adapter, 3);
  assembly::Completions here(pair.trained, assembly::Engine()), there(pair.trained, pair.remote());
  pair.check_same(here, there, 0);
  pair.change_weights();
  pair.check_same(here, there, 4);
}

TEST_CASE("asynchronous completions are those of the weights that were published last") {
  const assembly::LanguageModel model = quickstart();
  assembly::Completions made(model, assembly::Engine{.threads = 1}, assembly::Plain(), assembly::Asynchronous());
  CHECK(made.generator().source() == inference::WeightSource::snapshot);
  sync::AnySync sync = made.sync();
  CHECK(sync.publish(3).status == sync::Published::Status::copied);
  const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3}, .count = 2}};
  const auto out = made.generator().generate(requests, {.max_new_tokens = 4}, {.seed = 1});
  REQUIRE(out.at(0).size() == 2);
  CHECK(out[0][1].weights_version == 3);
  const sampler::PrefetchConfig ahead = made.ahead({.depth = 2});
  CHECK(ahead.depth == 2);
  CHECK(ahead.world == nullptr);
  CHECK(ahead.progress() > 0);
}

TEST_CASE("completions of several messages go through the choice of who draws and when") {
  const assembly::LanguageModel model = quickstart();
  struct Once {
    environment::Json reset(const environment::Json&, std::uint64_t) { return nullptr; }
    environment::Turn step(const std::string&) { return {.reward = 1.0, .done = true}; }
  };
  const assembly::Turns turns{.environments = environment::each<Once>("once"),
                              .dialogues = {assembly::dialogue(model, {.messages = false})}};
  const auto rows = assembly::prompts(model, {"1 + 1 ="});
  const std::vector<inference::Request> requests = {{.prompt = rows[0].ids, .source = &rows[0]}};
  const auto reward = [&](assembly::Completions& made) {
    sync::AnySync sync = made.sync();
    sync.publish(0);
    return made.generator().generate(requests, {.max_new_tokens = 4}, {.seed = 1}).at(0).at(0).interaction->reward;
  };
  assembly::Completions here(model, assembly::Engine(), turns);
  assembly::Completions ahead(model, assembly::Engine{.threads = 1}, turns, assembly::Asynchronous());
  CHECK(reward(here) == 1.0);
  CHECK(reward(ahead) == 1.0);
}

TEST_CASE("choices made at run time are those of code, and a pair that does not fit is refused by name") {
  const assembly::LanguageModel model = quickstart();
  const assembly::AnyDrawer drawer = assembly::Engine();
  assembly::Completions made(model, drawer, assembly::Plain(), assembly::Synchronous(), assembly::Whole(),
                             assembly::Completions::Context());
  CHECK(made.generator().source() == inference::WeightSource::shared);
  CHECK_THROWS_WITH(assembly::Completions(model, drawer, assembly::AnyForm(assembly::Agents()), assembly::Synchronous(),
                                          assembly::Whole(), assembly::Completions::Context()),
                    Catch::Contains("[rlalgo.assembly.1]") && Catch::Contains("server"));
}
