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
