#include <rlalgo/serve/schema_pattern.hpp>

#include <string>
#include <vector>

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

TEST_CASE("conditions on a text hold together") {
  const char* both = R"({"type": "string", "pattern": "^[a-c]+$", "maxLength": 3})";
  for (const char* text : {"\"a\"", "\"abc\""}) CHECK(fits(both, text));
  for (const char* text : {"\"\"", "\"abca\"", "\"abd\""}) CHECK(!fits(both, text));
  const char* found = R"({"type": "string", "pattern": "[0-9]", "minLength": 3, "maxLength": 4})";
  CHECK(fits(found, "\"a1b\""));
  CHECK(!fits(found, "\"a1\""));
  CHECK(!fits(found, "\"abc\""));
  CHECK(fits(R"({"type": "string", "pattern": "^a$|^b"})", "\"bc\""));
  CHECK(!fits(R"({"type": "string", "pattern": "^a$|^b"})", "\"ac\""));
  CHECK(fits(R"({"type": "string", "pattern": "^a.b$"})", "\"a\\\"b\""));
  CHECK(!fits(R"({"type": "string", "pattern": "^a.b$"})", "\"a\"b\""));
  CHECK(!fits(R"({"type": "string", "pattern": "^[^x]$"})", "\"x\""));
  // A pair of surrogates is one character, so no half of one comes.
  CHECK(!fits(R"({"type": "string", "minLength": 2, "maxLength": 2})", R"("\ud83d\ude00")"));
  CHECK(fits(R"({"type": "string", "format": "date"})", "\"2024-02-29\""));
  for (const char* day : {"\"2023-02-29\"", "\"2024-13-01\"", "\"1900-02-29\"", "\"0000-01-01\"", "\"today\""})
    CHECK(!fits(R"({"type": "string", "format": "date"})", day));
  CHECK(fits(R"({"type": "string", "format": "date-time"})", "\"2024-01-31T23:59:59.5Z\""));
  CHECK(fits(R"({"type": "string", "format": "ipv4"})", "\"255.0.10.1\""));
  CHECK(!fits(R"({"type": "string", "format": "ipv4"})", "\"256.0.10.1\""));
  CHECK(fits(R"({"type": "string", "format": "uuid", "pattern": "^0"})", "\"01234567-89ab-cdef-0123-456789abcdef\""));
  CHECK(!fits(R"({"type": "string", "format": "uuid", "pattern": "^0"})", "\"11234567-89ab-cdef-0123-456789abcdef\""));
  CHECK(fits(R"({"type": "string", "format": "password"})", "\"any\""));
}

TEST_CASE("numbers stay between their bounds and on their steps") {
  const auto whole = [](const std::string& keywords, int from, int to, const auto& good) {
    const Pattern pattern(serve::schema_pattern(Json::parse("{\"type\": \"integer\", " + keywords + "}")));
    for (int n = from; n <= to; ++n) {
      INFO(keywords << ": " << n);
      CHECK(pattern.accepts(pattern.next(pattern.start(), std::to_string(n))) == good(n));
    }
  };
  whole(R"("minimum": 0)", -20, 120, [](int n) { return n >= 0; });
  whole(R"("minimum": -7, "maximum": 113)", -150, 150, [](int n) { return n >= -7 && n <= 113; });
  whole(R"("exclusiveMinimum": 9, "exclusiveMaximum": 100)", -5, 120, [](int n) { return n > 9 && n < 100; });
  whole(R"("maximum": -3)", -1200, 5, [](int n) { return n <= -3; });
  whole(R"("minimum": 0.5, "maximum": 3.5)", -5, 10, [](int n) { return n >= 1 && n <= 3; });
  whole(R"("multipleOf": 7, "minimum": -30)", -50, 120, [](int n) { return n >= -30 && n % 7 == 0; });
  whole(R"("minimum": 5, "exclusiveMinimum": true)", 0, 12, [](int n) { return n > 5; });
  const auto real = [](const std::string& keywords, const std::string& text) {
    return fits(("{\"type\": \"number\", " + keywords + "}").c_str(), text);
  };
  for (const char* text : {"0", "1", "0.5", "1.0", "0.000", "0.99999"})
    CHECK(real(R"("minimum": 0, "maximum": 1)", text));
  for (const char* text : {"-0.1", "1.1", "2", "1.00001", "-0", "1e0"})
    CHECK(!real(R"("minimum": 0, "maximum": 1)", text));
  for (const char* text : {"0", "1", "1.0", "0.00"})
    CHECK(!real(R"("exclusiveMinimum": 0, "exclusiveMaximum": 1)", text));
  CHECK(real(R"("exclusiveMinimum": 0, "exclusiveMaximum": 1)", "0.001"));
  CHECK(real(R"("minimum": -1.25, "maximum": -0.5)", "-1.2"));
  CHECK(!real(R"("minimum": -1.25, "maximum": -0.5)", "-1.26"));
  CHECK(real(R"("multipleOf": 0.25, "minimum": 0)", "3.75"));
  CHECK(!real(R"("multipleOf": 0.25, "minimum": 0)", "3.8"));
}

TEST_CASE("allOf, references and what stands beside them are one schema") {
  const char* sides = R"({"$ref": "#/$defs/a", "minLength": 2, "$defs": {"a": {"type": "string", "maxLength": 3}}})";
  CHECK(fits(sides, "\"ab\""));
  CHECK(!fits(sides, "\"a\""));
  CHECK(!fits(sides, "\"abcd\""));
  const char* all = R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                        {"properties": {"a": {"minimum": 5}, "b": {"type": "null"}}}]})";
  CHECK(fits(all, R"({"a":5,"b":null})"));
  CHECK(!fits(all, R"({"a":4})"));
  CHECK(!fits(all, R"({"b":null})"));
  CHECK(!fits(R"({"type": "string", "enum": ["a", 1, "bcd"], "maxLength": 2})", "1"));
  CHECK(!fits(R"({"type": "string", "enum": ["a", 1, "bcd"], "maxLength": 2})", "\"bcd\""));
  CHECK(!fits(R"({"enum": [1, 2, 3], "not": {"enum": [2]}})", "2"));
  const char* either = R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
                           "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})";
  CHECK(fits(either, R"({"b":null})"));
  CHECK(!fits(either, "{}"));
  const char* told = R"({"oneOf": [{"type": "object", "properties": {"t": {"const": "x"}}, "required": ["t"]},
                         {"type": "object", "properties": {"t": {"const": "y"}, "v": {}}, "required": ["t", "v"]}]})";
  CHECK(fits(told, R"({"t":"x"})"));
  CHECK(!fits(told, R"({"t":"y"})"));
  CHECK(fits(R"({"type": "string", "nullable": true})", "null"));
}

TEST_CASE("tuples, distinct items, maps and open names") {
  const char* pair =
      R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": {"type": "null"},
                         "minItems": 1, "maxItems": 3})";
  for (const char* text : {"[1]", "[1,true]", "[1, true,null]"}) CHECK(fits(pair, text));
  for (const char* text : {"[]", "[true]", "[1,null]", "[1,true,null,null]"}) CHECK(!fits(pair, text));
  CHECK(!fits(R"({"type": "array", "items": [{"type": "integer"}], "additionalItems": false})", "[1,2]"));
  const char* few = R"({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": true, "minItems": 1})";
  for (const char* text : {R"(["c","a"])", R"(["b"])", R"(["a", "b", "c"])"}) CHECK(fits(few, text));
  for (const char* text : {R"(["a","a"])", R"([])", R"(["a","b","a"])"}) CHECK(!fits(few, text));
  const char* many =
      R"({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "uniqueItems": true,
                         "minItems": 2, "maxItems": 4})";
  for (const char* text : {"[1,2]", "[0, 50,99]", "[1,2,3,4]"}) CHECK(fits(many, text));
  for (const char* text : {"[1]", "[7,7]", "[1,2,3,4,5]", "[98,99"}) CHECK(!fits(many, text));
  const char* map =
      R"({"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}, "maxProperties": 2})";
  for (const char* text : {"{}", R"({"a":1})", R"({"a":1, "b":2})"}) CHECK(fits(map, text));
  for (const char* text : {R"({"a":-1})", R"({"a":1,"b":2,"c":3})"}) CHECK(!fits(map, text));
  const char* named =
      R"({"type": "object", "patternProperties": {"^x_": {"type": "null"}}, "additionalProperties": false})";
  CHECK(fits(named, R"({"x_1":null})"));
  CHECK(!fits(named, R"({"y":null})"));
  const char* least =
      R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "minProperties": 1})";
  CHECK(!fits(least, "{}"));
  CHECK(fits(R"({"type": "object", "required": ["z"], "properties": {"a": {"type": "null"}}})", R"({"z":1})"));
  CHECK(!fits(R"({"type": "object", "properties": {"a": false}})", R"({"a":1})"));
}

TEST_CASE("a schema within itself ends") {
  const char* chain =
      R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"v": {"type": "integer"},
                          "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["v", "next"]}}})";
  CHECK(fits(chain, R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"));
  CHECK(!fits(chain, R"({"v":1,"next":{"v":2}})"));
  const char* tree = R"({"type": "object", "properties": {"name": {"type": "string"}, "parts": {"type": "array",
                         "items": {"$ref": "#"}}}, "required": ["name"]})";
  CHECK(fits(tree, R"({"name":"a","parts":[{"name":"b"},{"name":"c","parts":[{"name":"d"}]}]})"));
  CHECK(!fits(tree, R"({"name":"a","parts":[{}]})"));
  CHECK(
      fits(R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}})", "[[],[[]]]"));
}

TEST_CASE("what is not supported is refused by its name and place") {
  const auto told = [](const char* schema, const std::vector<std::string>& words) {
    std::vector<std::string> all = {"serve.24"};
    all.insert(all.end(), words.begin(), words.end());
    INFO(schema);
    CHECK(support::lacks(support::raised_by([&] { (void)serve::schema_pattern(Json::parse(schema)); }), all) == "");
  };
  for (const char* name : {"if", "contains", "dependentRequired", "dependentSchemas", "contentEncoding"})
    told(("{\"properties\": {\"a\": {\"" + std::string(name) + "\": {}}}}").c_str(),
         {std::string("#/properties/a/") + name});
  told(R"({"type": "integer", "not": {"const": 3}})", {"#/not"});
  told(R"({"type": "string", "format": "isbn"})", {"#/format", "isbn"});
  told(R"({"type": "string", "maxlength": 3})", {"#/maxlength", "maxLength"});
  told(R"({"type": "array", "items": {"type": "object"}, "uniqueItems": true})", {"#/uniqueItems"});
  told(R"({"type": "array", "items": {"type": "string", "format": "date"}, "uniqueItems": true})", {"#/uniqueItems"});
  told(R"({"type": "number", "multipleOf": 0.01})", {"#/multipleOf"});
  told(R"x({"items": {"type": "string", "pattern": "a(?=b)"}})x", {"#/items/pattern"});
  told(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})", {"#/oneOf/1", "both"});
  told(R"({"allOf": [{"multipleOf": 0.5}, {"multipleOf": 0.75}]})", {"#/multipleOf"});
  told(R"({"type": "string", "pattern": "^a$", "minLength": 2})", {"no text"});
  told(R"({"$ref": "#"})", {"itself"});
  Json chain = {{"$ref", "#/$defs/0"}};
  for (int i = 0; i < 40; ++i)
    for (const char* side : {"a", "b"})
      chain["$defs"][std::to_string(i)]["properties"][side]["$ref"] = "#/$defs/" + std::to_string(i + 1);
  chain["$defs"]["40"] = Json::object();
  told(chain.dump().c_str(), {"smaller"});
  CHECK(support::raised_by([&] {
          (void)serve::schema_pattern(Json::parse(R"({"type": "null", "title": "a", "x-y": 1, "examples": [1]})"));
        }) == "nothing");
}

TEST_CASE("what would narrow texts further is refused by name, and so is what goes on without end") {
  for (const char* schema :
       {R"({"type": "integer", "minimum": "3"})", R"({"allOf": {}})", R"({"type": "text"})", R"({"enum": []})",
        R"({"$ref": "#/$defs/none"})", R"({"$ref": "other.json"})", "5",
        R"({"type": "object", "properties": {"a": {}}, "required": ["b"], "additionalProperties": false})",
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}})",
        R"({"type": "array", "minItems": 3, "maxItems": 2})"}) {
    INFO(schema);
    CHECK(refused(schema) == "serve.24");
  }
}
