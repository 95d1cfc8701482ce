#include <rlalgo/serve/fields.hpp>

#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using serve::Fields;
using serve::Json;
using support::raised_by;

TEST_CASE("fields are read with type and range; null is absent") {
  const Json object = Json::parse(
      R"({"n": 3, "whole": 5.0, "x": 0.5, "flag": true, "text": "a", "none": null, "list": ["a", "b"], "ids": [0, 6]})");
  Fields fields(object);
  CHECK(fields.integer("n", 1, 3) == 3);
  CHECK(fields.integer("whole", 1, 9) == 5);
  CHECK(fields.number("x", 0, 1) == 0.5);
  CHECK(fields.number("n", 0, 9) == 3.0);
  CHECK(fields.flag("flag", false));
  CHECK(fields.flag("absent", true));
  CHECK(fields.text("text") == "a");
  CHECK(!fields.text("none"));
  CHECK(!fields.has("none"));
  CHECK(fields.texts("text") == std::vector<std::string>{"a"});
  CHECK(fields.texts("list") == std::vector<std::string>{"a", "b"});
  CHECK(fields.ids("ids", 7) == std::vector<data::TokenId>{0, 6});
  CHECK(fields.unread().empty());
}

TEST_CASE("what has another type or range is refused with its place") {
  const Json object = Json::parse(
      R"({"n": 1.5, "big": 99999999999999999999, "text": 5, "flag": 1, "yes": true, "ids": [1, "a"], "far": [7]})");
  Fields fields(object, "params[3]");
  CHECK(raised_by([&] { (void)fields.integer("n", 0, 9); }).starts_with("serve.3"));
  CHECK(raised_by([&] { (void)fields.integer("big", 0, 9); }).starts_with("serve.4"));
  CHECK(raised_by([&] { (void)fields.integer("yes", 0, 9); }).starts_with("serve.3"));
  CHECK(raised_by([&] { (void)fields.number("n", 0, 1); }).starts_with("serve.4"));
  CHECK(raised_by([&] { (void)fields.number("yes", 0, 1); }).starts_with("serve.3"));
  CHECK(raised_by([&] { (void)fields.text("text"); }).starts_with("serve.3"));
  CHECK(raised_by([&] { (void)fields.flag("flag", false); }).starts_with("serve.3"));
  CHECK(raised_by([&] { (void)fields.ids("ids", 9); }).starts_with("serve.3"));
  CHECK(raised_by([&] { (void)fields.ids("far", 7); }).starts_with("serve.4"));
  CHECK(raised_by([&] { (void)fields.required("absent"); }).find("params[3].absent") != std::string::npos);
  CHECK(raised_by([&] { Fields inner(object["n"], "x"); }).starts_with("serve.3"));
}

TEST_CASE("names that nobody asked for are told") {
  const Json object = {{"a", 1}, {"b", 2}};
  Fields fields(object);
  (void)fields.integer("b", 0, 9);
  CHECK(fields.unread() == std::vector<std::string>{"a"});
}

TEST_CASE("a body is one JSON object within limits") {
  CHECK(serve::parse_body("{\"a\": 1}")["a"] == 1);
  for (const std::string& body :
       {std::string("{not json"), std::string(), std::string("[1]"), std::string("\"text\""), std::string("\xff\xfe{}"),
        std::string("{\"a\": NaN}"), std::string("{\"a\": 1e999}"), std::string("{\"a\": \"\\ud800\"}"),
        "{\"a\": " + std::string(100000, '[') + std::string(100000, ']') + "}"})
    CHECK(raised_by([&] { (void)serve::parse_body(body); }).starts_with("serve.1"));
}
