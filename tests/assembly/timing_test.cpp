#include <support/catch.hpp>

#include <rlalgo/assembly/timing.hpp>

using namespace rlalgo;

TEST_CASE("completions are made while training waits, or while it goes on") {
  STATIC_REQUIRE(assembly::Timing<assembly::Synchronous>);
  STATIC_REQUIRE(assembly::Timing<assembly::Asynchronous>);
  STATIC_REQUIRE_FALSE(assembly::Timing<int>);
  STATIC_REQUIRE(assembly::Asynchronous::asynchronous);
  STATIC_REQUIRE_FALSE(assembly::Synchronous::asynchronous);
  CHECK(assembly::Asynchronous().schedule == nullptr);
}
