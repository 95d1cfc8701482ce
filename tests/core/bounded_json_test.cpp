#include <rlalgo/core/bounded_json.hpp>

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <support/catch.hpp>

using namespace rlalgo::core;
using Json = nlohmann::ordered_json;

namespace {
std::string nested(std::size_t levels, const std::string& open = "[", const std::string& close = "]") {
  std::string out;
  for (std::size_t i = 0; i < levels; ++i) out += open;
  for (std::size_t i = 0; i < levels; ++i) out += close;
  return out;
}
std::string object_of(std::size_t members) {
  std::string out = "{";
  for (std::size_t i = 0; i < members; ++i) out += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  return out + "}";
}
}  // namespace

TEST_CASE("a text within the limits becomes its value") {
  for (const char* text : {"1", "null", "[]", R"({"a": [1, {"b": "x[[[{{{"}], "c": "\"[{\\"})", " [1.5, -2] "}) {
    const auto read = read_json<Json>(text);
    CHECK(read.problem.text.empty());
    CHECK(read.value == Json::parse(text));
  }
  CHECK(read_json<Json>(nested(200)).value == Json::parse(nested(200)));
  CHECK(read_json<Json>("[" + object_of(20000) + ", {}]").problem.text.empty());  // seconds without optimisation
  // Brackets side by side, or in texts, are no depth.
  std::string flat = "[\"" + std::string(1000, '[') + "\"";
  for (int i = 0; i < 1000; ++i) flat += ",[{}]";
  CHECK(read_json<Json>(flat + "]").problem.text.empty());
}

TEST_CASE("what is nested too deeply is refused before it is built") {
  for (const std::string& text : {nested(201), nested(100000), nested(100000, "{\"a\":", "}"), std::string(100000, '['),
                                  "{\"x\": \"\\\"\", \"y\": " + nested(300) + "}"}) {
    const auto read = read_json<Json>(text);
    CHECK(read.value.is_discarded());
    CHECK(read.problem.beyond_limit);
    CHECK(read.problem.text == "lists or objects nested more than 200 levels deep");
  }
  CHECK(read_json<Json>(nested(5), {.depth = 4}).problem.beyond_limit);
  CHECK(json_excess("[[[[1]]]]", {.depth = 4}).text.empty());
}

TEST_CASE("an object of very many members is refused") {
  const auto read = read_json<Json>("[" + object_of(1000000) + "]");
  CHECK(read.problem.beyond_limit);
  CHECK(read.problem.text == "an object of more than 20000 members");
  std::string doubled = "{";
  for (int i = 0; i < 100000; ++i) doubled += "\"a\":0,";
  CHECK(read_json<Json>(doubled + "\"b\":0}").problem.beyond_limit);
}

TEST_CASE("what is no JSON says why and how far it was read") {
  const auto broken = read_json<Json>("{\"a\": 1,\n\"b\": }");
  CHECK(broken.value.is_discarded());
  CHECK_FALSE(broken.problem.beyond_limit);
  CHECK(broken.problem.byte == 15);
  CHECK(broken.problem.text.find("no JSON value where one is expected") == 0);
  const auto huge = read_json<Json>("[1,\n 1e999]");
  CHECK(huge.value.is_discarded());
  CHECK(huge.problem.text == "a number that no double holds: '1e999'");
  CHECK(huge.problem.byte == 5);
  CHECK(read_json<Json>("").problem.text == "the text ends before the value does");
  CHECK(read_json<Json>("\"\xff\"").problem.text.find("UTF-8") != std::string::npos);
  CHECK(read_json<Json>("1 2").value.is_discarded());
}

TEST_CASE("what is wrong with JSON is said in our words, whatever it is") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"a\": 1,}", "no text in double quotes where a name is expected"},
      {"{a: 1}", "a word that JSON does not have (texts stand in double quotes), behind {a"},
      {"{'a': 1}", "a word that JSON does not have (texts stand in double quotes), behind {"},
      {"{\"a\" 1}", "no : behind a name"},
      {"{\"a\": 1 \"b\"}", "no comma or } behind a member"},
      {"[1 2]", "no comma or ] behind an item"},
      {"[1, 2", "the text ends before the value does"},
      {"{} {}", "more text behind the value"},
      {"\"abc", "a text without its closing quote"},
      {"\"a\tb\"", "a control character in a text"},
      {"\"\\q\"", "an escape that JSON does not have"},
      {"\"\\u12\"", "an escape that JSON does not have"},
      {"\"\\ud800\"", "half of a pair"},
      {"[1.]", "a number that is not complete"},
      {"[tru]", "a word that JSON does not have"},
      {"]", "no JSON value where one is expected"}};
  for (const auto& [text, expected] : cases) {
    const std::string said = read_json<Json>(text).problem.text;
    INFO(text << ": " << said);
    CHECK(said.starts_with(expected));
    for (const char* foreign : {"json.exception", "syntax error", "parse error", "last read", "parsing"})
      CHECK(said.find(foreign) == std::string::npos);
  }
  const auto said = [](auto act) {
    try {
      act();
    } catch (const Json::exception& error) {
      return rlalgo::core::json_reason(error.what());
    }
    return std::string("nothing");
  };
  CHECK(said([] { (void)Json(nullptr).get<std::string>(); }) == "null where string is expected");
  CHECK(said([] { (void)Json::object().at("a"); }) == "no entry 'a'");
  CHECK(said([] { (void)Json::array().at(3); }) == "no entry 3 in a list");
  CHECK(rlalgo::core::json_reason("a disk is full") == "a disk is full");
}
