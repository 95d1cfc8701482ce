#include <rlalgo/config/completions.hpp>

#include <variant>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

#include <rlalgo/model/load.hpp>

using namespace rlalgo;
using support::lacks;
using support::raised_by;

namespace {

std::shared_ptr<model::Decoder> small() {
  return model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 7);
}

}  // namespace

TEST_CASE("the address of the server is made of host and port, or given whole") {
  config::TrlConfig t;
  CHECK(config::server_url(t) == "http://127.0.0.1:8000");
  t.vllm_server_host = "gpu-7";
  t.vllm_server_port = 9001;
  CHECK(config::server_url(t) == "http://gpu-7:9001");
  t.vllm_server_base_url = "http://proxy/vllm";
  CHECK(config::server_url(t) == "http://proxy/vllm");
}

TEST_CASE("a rollout function comes from the configuration, or not at all") {
  const support::ScratchDirectory folder;
  folder.write("plays.py", "def texts(model, prompts):\n  return []\n\ndef ids(prompts, trainer):\n  return {}\n");
  config::RunConfig run;
  run.file = (folder.path() / "config.yaml").string();
  CHECK(config::rollout_function(run) == nullptr);
  run.trl.rollout_func = "plays.texts";
  CHECK(config::rollout_function(run)->draws_texts());
  run.trl.rollout_func = "plays.ids";
  CHECK_FALSE(config::rollout_function(run)->draws_texts());
}

TEST_CASE("who draws, and when, follow from the keys") {
  const auto decoder = small();
  config::RunConfig run;
  run.trl.stop_strings = {"."};
  const auto engine = std::get<assembly::Engine>(config::drawer_of(run, *decoder));
  CHECK(engine.stop_strings);
  CHECK_FALSE(engine.routed_experts);
  CHECK(std::holds_alternative<assembly::Synchronous>(config::timing_of(run)));
  run.trl.async_prefetch = true;
  CHECK(std::holds_alternative<assembly::Asynchronous>(config::timing_of(run)));
  run.trl.agents = true;
  run.trl.vllm_server_port = 0;
  run.trl.temperature = 0.5;
  const auto colocated = std::get<assembly::ColocatedServer>(config::drawer_of(run, *decoder));
  CHECK(colocated.port == 0);
  CHECK(colocated.sampling.temperature == 0.5);
  run.trl.use_vllm = true;
  run.trl.vllm_structured_outputs_regex = "[0-9]+";
  run.trl.request_timeout = 7;
  run.output_dir = "there";
  const auto server = std::get<assembly::Server>(config::drawer_of(run, *decoder));
  CHECK(server.url == "http://127.0.0.1:0");
  CHECK(server.call_seconds == 7);
  CHECK(server.directory == "there");
  CHECK(server.generation_kwargs.at("structured_outputs").at("regex") == "[0-9]+");
  CHECK(std::holds_alternative<assembly::Whole>(config::layout_of(nullptr)));
}

TEST_CASE("something must reward, unless features do") {
  config::RunConfig run;
  run.rl = "grpo";
  CHECK(lacks(raised_by([&] { (void)config::environments(run); }), {"config.24", "trl.environment_factory"}) == "");
  run.trl.reward_funcs = {"rewards.correct"};
  CHECK(config::environments(run) == nullptr);
  run.trl.reward_funcs = {};
  run.rl = "ebft";
  CHECK(config::environments(run) == nullptr);
}
