#include <rlalgo/assembly/server.hpp>

#include <cstdlib>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

TEST_CASE("a server loads plain adapters itself") {
  CHECK(assembly::is_servable({}));
  CHECK(assembly::is_servable({.use_rslora = true}));
  CHECK_FALSE(assembly::is_servable({.use_dora = true}));
  CHECK_FALSE(assembly::is_servable({.modules_to_save = {"lm_head"}}));
  CHECK_FALSE(assembly::is_servable({.rank_pattern = {{"q_proj", 4}}}));
  CHECK_FALSE(assembly::is_servable({.alpha_pattern = {{"q_proj", 4.0}}}));
  CHECK_FALSE(assembly::is_servable({.init = model::LoraInit::pissa}));
}

TEST_CASE("a server's key is that of the environment") {
  {
    const support::ScopedVariable none("VLLM_API_KEY", "");
    CHECK(assembly::server_key_headers().empty());
  }
  const support::ScopedVariable key("VLLM_API_KEY", "secret");
  const http::Headers headers = assembly::server_key_headers();
  REQUIRE(headers.size() == 1);
  CHECK(headers.front().value == "Bearer secret");
}
