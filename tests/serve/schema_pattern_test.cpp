#include <rlalgo/serve/schema_pattern.hpp>

#include <string>

#include <rlalgo/serve/pattern.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using serve::Json;
using serve::Pattern;

namespace {

bool fits(const char* schema, const std::string& text) {
  const Pattern pattern(serve::schema_pattern(Json::parse(schema)));
  return pattern.accepts(pattern.next(pattern.start(), text));
}

std::string refused(const char* schema) {
  return support::number_raised_by([&] { (void)serve::schema_pattern(Json::parse(schema)); });
}

}  // namespace

TEST_CASE("values of each type") {
  CHECK(fits(R"({"type": "integer"})", "-120"));
  CHECK(!fits(R"({"type": "integer"})", "012"));
  CHECK(!fits(R"({"type": "integer"})", "1.5"));
  CHECK(fits(R"({"type": "number"})", "-0.5e-3"));
  CHECK(fits(R"({"type": ["boolean", "null"]})", "null"));
  CHECK(!fits(R"({"type": ["boolean", "null"]})", "1"));
  CHECK(fits(R"({"type": "string"})", "\"a\\n\\u00e9 \xC3\xA9\""));
  CHECK(!fits(R"({"type": "string"})", "\"a\"b\""));
  CHECK(!fits(R"({"type": "string"})", "\"a\nb\""));
  CHECK(fits(R"({"type": "string", "minLength": 2, "maxLength": 3})", "\"abc\""));
  CHECK(!fits(R"({"type": "string", "minLength": 2, "maxLength": 3})", "\"a\""));
  CHECK(fits(R"({"type": "string", "pattern": "^[0-9]+$"})", "\"12\""));
  CHECK(!fits(R"({"type": "string", "pattern": "^[0-9]+$"})", "\"12a\""));
  CHECK(fits(R"({"type": "string", "pattern": "[0-9]"})", "\"a1b\""));
  CHECK(fits(R"({"enum": ["a.b", 1, null]})", "\"a.b\""));
  CHECK(!fits(R"({"enum": ["a.b", 1, null]})", "\"axb\""));
  CHECK(fits(R"({"const": {"x": [1]}})", R"({"x":[1]})"));
  CHECK(fits(R"({"anyOf": [{"type": "null"}, {"type": "integer"}]})", "3"));
  CHECK(fits("{}", R"({"a": [1, {"b": null}]})"));
}

TEST_CASE("lists and objects") {
  const char* list = R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})";
  CHECK(fits(list, "[1]"));
  CHECK(fits(list, "[1, 2,3]"));
  CHECK(!fits(list, "[]"));
  CHECK(!fits(list, "[1,2,3,4]"));
  CHECK(fits(R"({"type": "array", "items": {"type": "integer"}})", "[]"));
  const char* object = R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/b"},
                           "c": {"type": "null"}}, "required": ["b"], "$defs": {"b": {"type": "boolean"}}})";
  for (const char* text :
       {R"({"b":true})", R"({"a": 1, "b": false})", R"({"a":1,"b":true,"c":null})", R"({"b":true,"c":null})"})
    CHECK(fits(object, text));
  for (const char* text :
       {"{}", R"({"a":1})", R"({"a":1,"c":null})", R"({"b":true,"a":1})", R"({,"b":true})", R"({"b":true,})"})
    CHECK(!fits(object, text));
  const char* optional = R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}})";
  for (const char* text : {"{}", R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"})
    CHECK(fits(optional, text));
  CHECK(!fits(optional, R"({"a":null"b":null})"));
  CHECK(fits(R"({"type": "object", "properties": {}})", "{}"));
  const Pattern any(serve::any_object_pattern());
  CHECK(any.accepts(any.next(any.start(), R"({"a": {"b": [1, "x"]}, "c": true})")));
  CHECK(!any.accepts(any.next(any.start(), "[1]")));
}

TEST_CASE("what would narrow texts further is refused by name, and so is what goes on without end") {
  for (const char* schema :
       {R"({"type": "integer", "minimum": 3})", R"({"allOf": [{}]})", R"({"type": "text"})", R"({"enum": []})",
        R"({"$ref": "#/$defs/none"})", R"({"$ref": "other.json"})", R"({"type": "string", "pattern": "a.b"})",
        R"({"type": "object", "properties": {"a": {}}, "required": ["b"]})", "5",
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}})",
        R"({"type": "array", "minItems": 3, "maxItems": 2})"}) {
    INFO(schema);
    CHECK(refused(schema) == "serve.24");
  }
}
