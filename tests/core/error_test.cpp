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

TEST_CASE("what an error quotes cannot act on a terminal, nor forge a line of its own") {
  const Error quoting("data", 3,
                      {.what = "key \x1b[31m\n[rlalgo.core.1] forged", .found = "a\rb\xff\nline", .expected = "x\ny"});
  CHECK(std::string(quoting.what()) ==
        "[rlalgo.data.3] key \\x1b[31m\\x0a[rlalgo.core.1] forged: found a\\x0db\\xff\nline, expected x\\x0ay");
}

TEST_CASE("a part of an error that is very long loses its middle") {
  const std::string text = Error("remote", 3, {.what = "w", .found = std::string(5000000, 'x') + "end"}).what();
  CHECK(text.size() < 9000);
  CHECK(text.find("4991811 bytes left out") != std::string::npos);
  CHECK(text.ends_with("xend"));
}
