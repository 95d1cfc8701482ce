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

TEST_CASE("calls and thoughts where content alone is used are data.35") {
  const auto text = [](const char* message) {
    return detail::turn_text({{"m", Json::array({Json::parse(message)})}}, "m", 0, "rows.jsonl:2");
  };
  CHECK(text(R"({"content": "a", "tool_calls": [], "thinking": "", "reasoning": null})") == "a");
  for (const char* message :
       {R"({"content": null, "tool_calls": [{"function": {"name": "f"}}]})",
        R"({"content": "a", "reasoning_content": "hm"})", R"({"content": "a", "thinking": "hm"})"})
    CHECK_THROWS_WITH(text(message), Catch::StartsWith("[rlalgo.data.35]") && Catch::Contains("rows.jsonl:2"));
}
