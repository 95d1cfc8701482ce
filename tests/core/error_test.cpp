#include <support/catch.hpp>

#include <rlalgo/core/error.hpp>

using namespace rlalgo::core;

TEST_CASE("an error names room, number and every fact that is known") {
  const Error full("data", 7, {.what = "w", .found = "f", .expected = "e", .where = "file:3", .remedy = "do this"});
  CHECK(std::string(full.what()) == "[rlalgo.data.7] w: found f, expected e, at file:3; do this");
  CHECK(std::string(Error("core", 1, {.what = "w"}).what()) == "[rlalgo.core.1] w");
  CHECK(std::string(Error("core", 1, {.what = "w", .where = "x"}).what()) == "[rlalgo.core.1] w: at x");
  CHECK(full.room() == "data");
  CHECK(full.number() == 7);
}

TEST_CASE("a failed run exits 1, wrong usage exits 2, whatever the static type") {
  const auto exit_code = [](auto&& thrower) {
    try {
      thrower();
    } catch (const Error& error) {
      return error.exit_code();
    }
    return 0;
  };
  CHECK(exit_code([] { raise("core", 1, {.what = "w"}); }) == 1);
  CHECK(exit_code([] { raise_usage("core", 1, {.what = "w"}); }) == 2);
}
