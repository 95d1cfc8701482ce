#include <support/catch.hpp>

#include <memory>

#include <rlalgo/assembly/form.hpp>

using namespace rlalgo;

TEST_CASE("a plain answer is what was drawn") {
  STATIC_REQUIRE(assembly::Form<assembly::Plain>);
  STATIC_REQUIRE_FALSE(assembly::Form<int>);
  STATIC_REQUIRE_FALSE(assembly::Plain::exclusive);
  const auto drawer = std::make_shared<int>(3);
  CHECK(assembly::Plain().around(drawer, "") == drawer);
}
