#include <support/catch.hpp>

#include <fstream>
#include <iterator>
#include <string>

#include <rlalgo/core/version.hpp>

TEST_CASE("the header and the build agree on the version") {
  std::ifstream in(std::string(rlalgo::support::test_dir) + "/../CMakeLists.txt");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  REQUIRE_FALSE(text.empty());
  CHECK(text.find("VERSION " + std::string(rlalgo::version)) != std::string::npos);
}

TEST_CASE("the version's macros say what its text says") {
  const std::string text = std::to_string(RLALGO_VERSION_MAJOR) + "." + std::to_string(RLALGO_VERSION_MINOR) + "." +
                           std::to_string(RLALGO_VERSION_PATCH);
  CHECK(text == rlalgo::version);
  STATIC_REQUIRE(RLALGO_VERSION_MINOR < 100);
  STATIC_REQUIRE(RLALGO_VERSION_PATCH < 100);
#if RLALGO_VERSION < 100
  FAIL("the macro is not a number that the preprocessor compares");
#endif
}
