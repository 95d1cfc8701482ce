#include <rlalgo/core/json_depth.hpp>

#include <string>

#include <support/catch.hpp>

using rlalgo::core::json_depth;

TEST_CASE("levels are counted outside of strings") {
  CHECK(json_depth("") == 0);
  CHECK(json_depth("12") == 0);
  CHECK(json_depth("[]") == 1);
  CHECK(json_depth(R"([{"a": [1]}, [2], {}])") == 3);
  CHECK(json_depth(R"(["[[[", "\"[[", "\\", [1]])") == 2);
  CHECK(json_depth("]]]][") == 1);
  CHECK(json_depth(R"("open \)") == 0);
  CHECK(json_depth(std::string(100000, '[')) == 100000);
}
