#include <string>

#include <support/catch.hpp>

#include <rlalgo/environment/tool_calls.hpp>

using rlalgo::environment::assistant_message;
using Json = nlohmann::ordered_json;

TEST_CASE("calls in the Hermes format become tool_calls, and the text before them the content") {
  const Json one = assistant_message(
      "Let me see.\n<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"2*3\"}}\n</tool_call>");
  CHECK(one == Json::parse(R"({"role": "assistant", "content": "Let me see.", "tool_calls": [{"type": "function",
      "function": {"name": "calculator", "arguments": {"expression": "2*3"}}}]})"));
  const Json two = assistant_message(
      R"(<tool_call>{"name": "a", "arguments": {}}</tool_call><tool_call>{"name": "b", "arguments": "{\"x\": 1}"}</tool_call> rest)");
  CHECK(two["content"] == "");
  REQUIRE(two["tool_calls"].size() == 2);
  CHECK(two["tool_calls"][0]["function"] == Json::parse(R"({"name": "a", "arguments": {}})"));
  CHECK(two["tool_calls"][1]["function"] == Json::parse(R"({"name": "b", "arguments": {"x": 1}})"));
  const Json between = assistant_message(
      R"( see <tool_call>{"name": "a", "arguments": {}}</tool_call> then <tool_call>{"name": "b", "arguments": {}}</tool_call>)");
  CHECK(between["content"] == "see");
  CHECK(between["tool_calls"].size() == 2);
  CHECK(assistant_message(R"(<tool_call>{"name": "a"}</tool_call>)")["tool_calls"][0]["function"]["arguments"] ==
        Json::object());
}

TEST_CASE("calls in the forms of Llama 3.1") {
  const Json call =
      Json::parse(R"([{"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": "}"}}}])");
  for (const std::string text :
       {R"({"name": "add", "parameters": {"a": 1, "b": "}"}})",
        R"(<|python_tag|>{"name": "add", "parameters": {"a": 1, "b": "}"}})",
        "\n {\"type\": \"function\", \"name\": \"add\", \"parameters\": {\"a\": 1, \"b\": \"}\"}}\n",
        R"({"name": "add", "parameters": "{\"a\": 1, \"b\": \"}\"}"})",
        R"(<function=add>{"a": 1, "b": "}"}</function>)"}) {
    INFO(text);
    const Json message = assistant_message(text);
    CHECK(message["content"] == "");
    CHECK(message["tool_calls"] == call);
  }
  const Json two = assistant_message(R"({"name": "a", "parameters": {}}; {"name": "b", "parameters": {"x": 1}})");
  REQUIRE(two["tool_calls"].size() == 2);
  CHECK(two["tool_calls"][1]["function"]["name"] == "b");
  CHECK(assistant_message(R"(See: <function=a>{}</function>)")["content"] == "See:");
  for (const std::string text :
       {R"({"name": "add"})", R"({"name": "add", "arguments": {}})", R"({"name": 3, "parameters": {}})",
        R"({"name": "Bo", "parameters": {}, "age": 3})", R"({"name": "add", "parameters": {}} or so)",
        R"(I call {"name": "add", "parameters": {}})", R"({"name": "add", "parameters": {)",
        R"(<function=a>no</function>)"}) {
    INFO(text);
    CHECK(assistant_message(text) == Json{{"role", "assistant"}, {"content", text}});
  }
}

TEST_CASE("what is no call is text") {
  for (const std::string text :
       {"", "plain", "<tool_call>", "<tool_call>{\"name\": \"a\"}", "<tool_call>{\"type\":\"function\"</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>{\"name\": 3, \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": 3}</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": \"no\"}</tool_call>", "</tool_call><tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call><tool_call>oops</tool_call>",
        "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"b\"}"}) {
    INFO(text);
    CHECK(assistant_message(text) == Json{{"role", "assistant"}, {"content", text}});
  }
}

TEST_CASE("a call whose arguments are nested very deeply is text") {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  for (const std::string& arguments : {"{\"x\": " + deep + "}", "\"{" + deep + "}\""}) {
    const std::string text = R"(<tool_call>{"name": "a", "arguments": )" + arguments + "}</tool_call>";
    CHECK(assistant_message(text) == Json{{"role", "assistant"}, {"content", text}});
  }
}
