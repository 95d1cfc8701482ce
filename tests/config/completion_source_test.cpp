#include <rlalgo/config/completion_source.hpp>

#include <filesystem>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/inference/local_engine.hpp>

#include <support/catch.hpp>

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
