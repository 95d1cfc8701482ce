#include <support/catch.hpp>

#include <memory>
#include <stdexcept>
#include <string>

#include <rlalgo/assembly/agents.hpp>

using namespace rlalgo;

TEST_CASE("agents begin when the server listens, with its address") {
  STATIC_REQUIRE(assembly::Agents::asks_server);
  std::string told;
  const assembly::Agents agents{[&](const std::string& address) -> std::shared_ptr<remote::GymAgents> {
    told = address;
    throw std::runtime_error("no gym");
  }};
  CHECK_THROWS_WITH((void)agents.around(std::make_shared<int>(0), "http://here"), Catch::Contains("no gym"));
  CHECK(told == "http://here");
}
