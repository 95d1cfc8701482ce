#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/data/gym_row.hpp>

using namespace rlalgo;
using data::gym_messages;
using data::gym_tools;
using data::Json;
using support::lacks;
using support::raised_by;

namespace {

Json row(const Json& input) { return {{"responses_create_params", {{"input", input}}}}; }
Json message(const std::string& role, const Json& content) { return {{"role", role}, {"content", content}}; }

}  // namespace

TEST_CASE("the input of a Gym's row becomes messages; developer is system, and nothing is dropped") {
  CHECK(gym_messages(row("Hi"), "r") == Json::array({message("user", "Hi")}));
  CHECK(gym_messages(row(Json::array({message("developer", "Be brief."), message("user", "Hi")})), "r") ==
        Json::array({message("system", "Be brief."), message("user", "Hi")}));
  Json instructed = row(Json::array({message("developer", "Use tools."), message("user", "Hi")}));
  instructed["responses_create_params"]["instructions"] = "Be brief.";
  CHECK(gym_messages(instructed, "r") ==
        Json::array({message("system", "Be brief.\n\nUse tools."), message("user", "Hi")}));
  const Json parts = Json::array({{{"type", "input_text"}, {"text", "a"}}, {{"type", "input_text"}, {"text", "b"}}});
  CHECK(gym_messages(row(Json::array({message("user", parts)})), "r") == Json::array({message("user", "ab")}));
}

TEST_CASE("calls and their outputs in the input are calls and results of tools") {
  const Json input = Json::array({message("user", "Weather?"),
                                  {{"type", "reasoning"}, {"summary", Json::array()}},
                                  {{"type", "function_call"}, {"name", "look"}, {"arguments", "{\"city\": \"Oslo\"}"}},
                                  {{"type", "function_call"}, {"name", "look"}, {"arguments", "no JSON"}},
                                  {{"type", "function_call_output"}, {"call_id", "c"}, {"output", "cold"}}});
  const Json messages = gym_messages(row(input), "r");
  REQUIRE(messages.size() == 3);
  CHECK(messages[1]["tool_calls"][0]["function"] == Json{{"name", "look"}, {"arguments", {{"city", "Oslo"}}}});
  CHECK(messages[1]["tool_calls"][1]["function"]["arguments"] == "no JSON");
  CHECK(messages[2] == Json{{"role", "tool"}, {"content", "cold"}});
}

TEST_CASE("tools are shown without the fields that only OpenAI knows") {
  Json with = row("Hi");
  CHECK(gym_tools(with).is_null());
  CHECK(gym_tools(Json::object()).is_null());
  with["responses_create_params"]["tools"] = Json::array({{{"type", "function"},
                                                           {"name", "look"},
                                                           {"description", "Looks."},
                                                           {"parameters", {{"type", "object"}}},
                                                           {"strict", true}},
                                                          {{"type", "web_search"}}});
  CHECK(gym_tools(with) ==
        Json::array(
            {{{"type", "function"},
              {"function", {{"name", "look"}, {"description", "Looks."}, {"parameters", {{"type", "object"}}}}}}}));
}

TEST_CASE("a row that cannot be shown is refused with its place and the item") {
  const auto error = [](const Json& value) { return raised_by([&] { (void)gym_messages(value, "rows.jsonl:3"); }); };
  CHECK(lacks(error({{"question", "x"}}), {"data.31", "no responses_create_params", "rows.jsonl:3", "question"}) == "");
  CHECK(lacks(error(row(nullptr)), {"data.31", "has no input"}) == "");
  CHECK(lacks(error(row(Json::array())), {"data.31", "no messages"}) == "");
  CHECK(lacks(error(row(Json::array({"x"}))), {"data.31", "no object", "\"x\""}) == "");
  CHECK(lacks(error(row(Json::array({message("user", 3)}))), {"data.31", "no text", "3"}) == "");
  CHECK(lacks(error(row(Json::array({{{"role", "user"}}}))), {"data.31", "no message"}) == "");
  CHECK(lacks(error(row(Json::array({{{"type", "function_call"}}}))), {"data.31", "no name or arguments"}) == "");
}
