#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/data/template_columns.hpp>

using namespace rlalgo::data;

TEST_CASE("tools are a list or a JSON text; absent, null and JSON's null are the same") {
  const Json list = Json::parse(R"([{"type": "function"}])");
  CHECK(template_columns({{"tools", list}}, "r").tools == list);
  CHECK(template_columns({{"tools", list.dump()}}, "r").tools == list);
  CHECK(template_columns({{"mine", list}}, "r", "mine").tools == list);
  for (const Json& row : {Json{{"x", 1}}, Json{{"tools", nullptr}}, Json{{"tools", "null"}}}) {
    CHECK(template_columns(row, "r").tools.is_null());
    CHECK(template_columns(row, "r").empty());
  }
  CHECK(template_columns({{"tools", Json::array()}}, "r").tools == Json::array());
  CHECK(template_columns({{"tools", Json::array()}}, "r").empty());
  for (const Json& wrong : {Json("calculator"), Json(5), Json::object(), Json::array({"calculator"}), Json("[1]")})
    CHECK_THROWS_WITH(template_columns({{"tools", wrong}}, "rows.jsonl:3"),
                      Catch::StartsWith("[rlalgo.data.32]") && Catch::Contains("rows.jsonl:3"));
}

TEST_CASE("variables of a row; tools among them replace the column") {
  const Json list = Json::parse(R"([{"type": "function"}])");
  const TemplateColumns both =
      template_columns({{"tools", Json::array()}, {"chat_template_kwargs", {{"tools", list}, {"x", 1}}}}, "r");
  CHECK(both.tools == list);
  CHECK(both.kwargs == Json{{"x", 1}});
  CHECK(template_columns({{"chat_template_kwargs", Json::object()}}, "r").empty());
  CHECK_THROWS_WITH(template_columns({{"chat_template_kwargs", "x"}}, "r"), Catch::StartsWith("[rlalgo.data.32]"));
  CHECK(merged_kwargs({{"a", 1}, {"b", 2}}, {{"b", 3}}) == Json{{"a", 1}, {"b", 3}});
  CHECK(merged_kwargs(nullptr, {{"b", 3}}) == Json{{"b", 3}});
  CHECK(merged_kwargs({{"a", 1}}, nullptr) == Json{{"a", 1}});
}

TEST_CASE("a render of messages alone raises for a row's columns") {
  const Render two = [](const Json& messages, bool prompt) { return messages.dump() + (prompt ? ">" : ""); };
  CHECK(two(Json::array(), true) == "[]>");
  CHECK_THROWS_WITH(two(Json::array(), true, {.tools = Json::array({Json::object()})}),
                    Catch::StartsWith("[rlalgo.data.33]"));
  const Render three = [](const Json&, bool, const TemplateColumns& columns) { return columns.tools.dump(); };
  CHECK(three(Json::array(), true, {.tools = Json::array()}) == "[]");
  CHECK(three(Json::array(), true) == "null");
  CHECK(static_cast<bool>(three));
  CHECK_FALSE(static_cast<bool>(Render()));
}
