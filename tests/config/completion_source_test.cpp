#include <rlalgo/config/completion_source.hpp>

#include <filesystem>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/serve/server.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace rlalgo::support {
extern const char* const test_dir;
}

TEST_CASE("the address of the server is made of host and port, or given whole") {
  config::TrlConfig t;
  CHECK(config::server_url(t) == "http://127.0.0.1:8000");
  t.vllm_server_host = "gpu-7";
  t.vllm_server_port = 9001;
  CHECK(config::server_url(t) == "http://gpu-7:9001");
  t.vllm_server_base_url = "http://proxy/vllm";
  CHECK(config::server_url(t) == "http://proxy/vllm");
}

TEST_CASE("a server loads plain adapters itself") {
  CHECK(config::is_servable({}));
  CHECK(config::is_servable({.use_rslora = true}));
  CHECK_FALSE(config::is_servable({.use_dora = true}));
  CHECK_FALSE(config::is_servable({.modules_to_save = {"lm_head"}}));
  CHECK_FALSE(config::is_servable({.rank_pattern = {{"q_proj", 4}}}));
  CHECK_FALSE(config::is_servable({.alpha_pattern = {{"q_proj", 4.0}}}));
  CHECK_FALSE(config::is_servable({.init = model::LoraInit::pissa}));
}

TEST_CASE("what is computed of a prompt serves later calls under one version of the weights, and no other") {
  const auto model = config::LanguageModel::load(
      (std::filesystem::path(support::test_dir).parent_path() / "examples/quickstart/model").string());
  config::CompletionSource source({}, model);
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

config::LanguageModel quickstart() {
  return config::LanguageModel::load(
      (std::filesystem::path(support::test_dir).parent_path() / "examples/quickstart/model").string());
}

// A trainer's model, and a server of this program that began with the same weights.
struct Pair {
  config::LanguageModel trained = quickstart(), served = quickstart();
  support::ScratchDirectory scratch;
  serve::GenerationServer server{
      {.name = "m", .root = "m", .decoder = served.decoder, .tokenizer = served.tokenizer, .stop_ids = served.stop_ids},
      {.http = {.port = 0}, .engine = {.engine = {.threads = 1}}, .report_seconds = 0}};

  [[nodiscard]] config::RunConfig settings() const {
    config::RunConfig out;
    out.output_dir = scratch.path().string();
    out.trl.use_vllm = true;
    out.trl.vllm_server_base_url = server.url();
    out.trl.vllm_server_timeout = 10;
    out.trl.request_timeout = 60;
    return out;
  }

  // Generates on both sides with the weights of `version`; whether every bit is the same.
  void check_same(config::CompletionSource& here, config::CompletionSource& there, std::int64_t version) const {
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
  config::CompletionSource here({}, pair.trained), there(pair.settings(), pair.trained);
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
  config::CompletionSource here({}, pair.trained), there(pair.settings(), pair.trained);
  pair.check_same(here, there, 0);
  pair.change_weights();
  pair.check_same(here, there, 4);
}
