#include <support/catch.hpp>

#include <rlalgo/data/preference_row.hpp>

using namespace rlalgo::data;
namespace fields = rlalgo::data::detail;

TEST_CASE("absent, null and empty optional texts are the same") {
  const Json row = {{"empty", ""}, {"none", nullptr}, {"text", "x"}, {"number", 3}};
  CHECK(fields::optional_text(row, "empty", "r").empty());
  CHECK(fields::optional_text(row, "none", "r").empty());
  CHECK(fields::optional_text(row, "missing", "r").empty());
  CHECK(fields::optional_text(row, "text", "r") == "x");
  CHECK_THROWS_WITH(fields::optional_text(row, "number", "r"), Catch::StartsWith("[rlalgo.data.10]"));
}

TEST_CASE("turns of a list of messages") {
  const Json row = {{"chosen", Json::array({{{"role", "user"}, {"content", "Q"}}, {{"role", "assistant"}}})},
                    {"text", "x"}};
  CHECK(fields::turn_text(row, "chosen", 0, "r") == "Q");
  CHECK_THROWS_WITH(fields::turn_text(row, "chosen", 1, "r"), Catch::StartsWith("[rlalgo.data.10]"));
  CHECK_THROWS_WITH(fields::turn_text(row, "chosen", 2, "r"), Catch::StartsWith("[rlalgo.data.21]"));
  CHECK_THROWS_WITH(fields::turn_text(row, "text", 0, "r"), Catch::StartsWith("[rlalgo.data.10]"));
}
