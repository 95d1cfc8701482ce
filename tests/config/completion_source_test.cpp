#include <rlalgo/config/completion_source.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

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
