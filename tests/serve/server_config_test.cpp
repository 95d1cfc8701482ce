#include <rlalgo/serve/server_config.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("by default a server is this machine's own, takes weights, and bounds everything else") {
  const serve::ServerConfig config;
  CHECK(config.http.host == "127.0.0.1");
  CHECK(config.http.port == 8000);
  CHECK(config.http.body_limit > config.body_limit);
  CHECK(config.engine.most_waiting > 0);
  CHECK(config.request_seconds > 0);
  CHECK(config.most_log_probs == 20);
  CHECK(!config.open_to_all);
}
