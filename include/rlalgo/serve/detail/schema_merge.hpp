// Schemas as one object without references: $ref, allOf and what stands beside them, merged keyword by keyword.
//
//   {"$ref": "#/$defs/a", "minLength": 2}      what both say
//   {"allOf": [a, b], …}                       the narrower bounds; types, enum and const of both; properties of both
//
// A schema that nothing fulfils is `false`. What two schemas say otherwise of one keyword, and cannot be said at once, is refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/fields.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve::detail {

// `at`: a JSON pointer to the keyword, or to the schema.
[[noreturn]] inline void refuse_schema(const std::string& found, const std::string& at,
                                       const std::string& remedy = "leave it out, or say it with another keyword") {
  refuse_request(400, 24,
                 {.what = "a JSON schema for structured output cannot be used",
                  .found = found,
                  .expected = "keywords that docs/serving.md lists",
                  .where = "schema #" + at,
                  .remedy = remedy});
}

class SchemaMerger {
 public:
  explicit SchemaMerger(const Json& root) : root_(root) {}

  // `schema` without $ref and allOf. The references that were followed are added to `followed`.
  [[nodiscard]] Json flattened(const Json& schema, const std::string& at, std::vector<std::string>& followed,
                               int depth = 0) {
    count(schema, at);
    if (depth > most_references) refuse_schema("a $ref that leads to itself", at);
    if (!schema.is_object()) return schema;
    Json own = Json::object();
    for (const auto& [name, value] : schema.items())
      if (name != "$ref" && name != "allOf" && name != "$dynamicRef" && name != "$recursiveRef") own[name] = value;
    normalise(own, at);
    for (const char* name : {"$dynamicRef", "$recursiveRef"})
      if (schema.contains(name)) refuse_schema(name, at + "/" + name, "use $ref");
    if (const auto reference = schema.find("$ref"); reference != schema.end()) {
      const Json& target = referred(*reference, at + "/$ref");
      followed.push_back(reference->get<std::string>());
      own = merged(flattened(target, at + "/$ref", followed, depth + 1), own, at);
    }
    if (const auto all = schema.find("allOf"); all != schema.end()) {
      if (!all->is_array() || all->empty()) refuse_schema("allOf " + quoted(*all), at + "/allOf");
      for (std::size_t i = 0; i < all->size(); ++i)
        own = merged(own, flattened((*all)[i], at + "/allOf/" + std::to_string(i), followed, depth + 1), at);
    }
    return own;
  }

  // What both allow; neither has $ref or allOf at its top.
  [[nodiscard]] Json merged(const Json& a, const Json& b, const std::string& at) {
    for (const Json* one : {&a, &b})
      if (!one->is_object() && !one->is_boolean()) refuse_schema(quoted(*one), at);
    if (a == false || b == false) return false;
    if (a == true) return b;
    if (b == true) return a;
    count(a, at);
    count(b, at);
    Json out = a;
    for (const auto& [name, value] : b.items()) {
      const auto own = out.find(name);
      if (own == out.end())
        out[name] = value;
      else if (*own != value)
        *own = of_both(name, *own, value, a, b, at);
    }
    close_properties(out, a, b);
    for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
      if (one->contains("prefixItems") && !other->contains("prefixItems") && other->contains("items"))
        for (Json& item : out["prefixItems"]) item = together(item, (*other)["items"]);
    if (out.contains("type") && out["type"].is_array() && out["type"].empty()) return false;
    if (out.contains("enum") && out["enum"].is_array() && out["enum"].empty()) return false;
    return out;
  }

  [[nodiscard]] const Json& referred(const Json& reference, const std::string& at) const {
    if (!reference.is_string()) refuse_schema("$ref " + quoted(reference), at);
    const auto& text = reference.get_ref<const std::string&>();
    if (text == "#") return root_;
    if (text.starts_with("#/")) {
      try {
        return root_.at(Json::json_pointer(text.substr(1)));
      } catch (const Json::exception&) {
        refuse_schema("$ref to " + quoted(reference) + ", where nothing is", at);
      }
    }
    refuse_schema("$ref to " + quoted(reference), at, "refer to a place in the schema: #/$defs/name");
  }

 private:
  static constexpr int most_references = 50;
  static constexpr std::size_t most_members = 30'000;

  // A schema may stand for far more than it holds.
  void count(const Json& schema, const std::string& at) {
    members_ += 1 + (schema.is_structured() ? schema.size() : 0);
    if (members_ > most_members)
      refuse_schema(
          "a schema whose references and allOf stand for more than " + std::to_string(most_members) + " members", at,
          "make it smaller");
  }

  // const is an enum of one; bounds of draft 4 are those of later ones; a list of items is prefixItems.
  static void normalise(Json& schema, const std::string& at) {
    if (schema.contains("const")) {
      Json one = Json::array({schema["const"]});
      schema.erase("const");
      schema["enum"] = schema.contains("enum") ? common(schema["enum"], one) : one;
    }
    for (const auto& [name, bound] :
         {std::pair("exclusiveMinimum", "minimum"), std::pair("exclusiveMaximum", "maximum")}) {
      if (!schema.contains(name) || !schema[name].is_boolean()) continue;
      const bool excluded = schema[name].get<bool>();
      schema.erase(name);
      if (!excluded) continue;
      if (!schema.contains(bound)) refuse_schema(std::string(name) + " without " + bound, at + "/" + name);
      schema[name] = schema[bound];
      schema.erase(bound);
    }
    if (schema.contains("items") && schema["items"].is_array()) {
      Json prefix = schema["items"];
      schema.erase("items");
      schema["prefixItems"] = std::move(prefix);
      if (schema.contains("additionalItems")) {
        Json rest = schema["additionalItems"];
        schema["items"] = std::move(rest);
      }
    }
    schema.erase("additionalItems");
    if (schema.contains("nullable")) {
      const bool nullable = schema["nullable"] == true;
      schema.erase("nullable");
      if (nullable && schema.contains("type")) {
        Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
        if (std::find(types.begin(), types.end(), Json("null")) == types.end()) types.push_back("null");
        schema["type"] = std::move(types);
        if (schema.contains("enum") && schema["enum"].is_array()) schema["enum"].push_back(nullptr);
      }
    }
  }

  [[nodiscard]] static Json common(const Json& a, const Json& b) {
    Json out = Json::array();
    for (const Json& one : a)
      if (std::find(b.begin(), b.end(), one) != b.end()) out.push_back(one);
    return out;
  }
  [[nodiscard]] static Json list_of(const Json& value) { return value.is_array() ? value : Json::array({value}); }
  [[nodiscard]] static Json types_of_both(const Json& a, const Json& b) {
    Json out = Json::array();
    const Json first = list_of(a), second = list_of(b);
    for (const Json& x : first)
      for (const Json& y : second) {
        const bool whole = (x == "integer" && y == "number") || (x == "number" && y == "integer");
        const Json one = x == y ? x : whole ? Json("integer") : Json();
        if (!one.is_null() && std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
      }
    return out.size() == 1 ? out[0] : out;
  }
  [[nodiscard]] static Json together(const Json& a, const Json& b) { return {{"allOf", {a, b}}}; }

  [[nodiscard]] static Json of_both(const std::string& name, const Json& a, const Json& b, const Json& whole_a,
                                    const Json& whole_b, const std::string& at) {
    static const std::set<std::string> greatest = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                                   "minProperties"};
    static const std::set<std::string> least = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                                "maxProperties"};
    static const std::set<std::string> notes = {"title",   "description", "default",  "examples",  "example",
                                                "$schema", "$id",         "$comment", "$defs",     "definitions",
                                                "$anchor", "deprecated",  "readOnly", "writeOnly", "discriminator"};
    if (notes.contains(name) || name.starts_with("x-")) return a;
    if (greatest.contains(name) || least.contains(name)) {
      if (!a.is_number() || !b.is_number()) refuse_schema(name + " " + quoted(a.is_number() ? b : a), at + "/" + name);
      return (a < b) == greatest.contains(name) ? b : a;
    }
    if (name == "type") return types_of_both(a, b);
    if (name == "enum" && a.is_array() && b.is_array()) return common(a, b);
    if (name == "uniqueItems") return a == true || b == true;
    if (name == "pattern" || name == "format") {
      Json out = list_of(a);
      for (const Json& one : list_of(b)) out.push_back(one);
      return out;
    }
    if (name == "required" && a.is_array() && b.is_array()) {
      Json out = a;
      for (const Json& one : b)
        if (std::find(out.begin(), out.end(), one) == out.end()) out.push_back(one);
      return out;
    }
    if ((name == "properties" || name == "patternProperties") && a.is_object() && b.is_object()) {
      Json out = a;
      for (const auto& [property, schema] : b.items())
        out[property] = out.contains(property) && out[property] != schema ? together(out[property], schema) : schema;
      return out;
    }
    if (name == "prefixItems" && a.is_array() && b.is_array()) {
      Json out = Json::array();
      for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
        const Json x = i < a.size() ? a[i] : whole_a.value("items", Json(true));
        const Json y = i < b.size() ? b[i] : whole_b.value("items", Json(true));
        out.push_back(x == y ? x : together(x, y));
      }
      return out;
    }
    if (name == "items" || name == "additionalProperties" || name == "propertyNames" ||
        name == "unevaluatedProperties" || name == "unevaluatedItems") {
      if (a == false || b == false) return false;
      return a == true ? b : b == true ? a : together(a, b);
    }
    if (name == "multipleOf") {
      const auto x = whole(a), y = whole(b);
      if (x && y && *x > 0 && *y > 0 && *x < 1'000'000 && *y < 1'000'000) return std::lcm(*x, *y);
    }
    if (name == "anyOf" || name == "oneOf") {
      Json out = Json::array();
      if (!a.is_array() || !b.is_array() || a.size() * b.size() > 1000) refuse_schema(name + " twice", at + "/" + name);
      for (const Json& x : a)
        for (const Json& y : b) out.push_back(together(x, y));
      return out;
    }
    refuse_schema(name + " twice: " + quoted(a) + " and " + quoted(b), at + "/" + name);
  }

  // What one names and the other does not is for the other an additional property.
  static void close_properties(Json& out, const Json& a, const Json& b) {
    const auto close = [&](const Json& named, const Json& other) {
      const auto properties = named.find("properties");
      const auto rest = other.find("additionalProperties");
      if (properties == named.end() || !properties->is_object() || rest == other.end() || *rest == true) return;
      for (const auto& [name, schema] : properties->items()) {
        if (other.contains("properties") && other["properties"].contains(name)) continue;
        out["properties"][name] = *rest == false ? Json(false) : together(schema, *rest);
      }
    };
    close(a, b);
    close(b, a);
  }

  const Json& root_;
  std::size_t members_ = 0;
};

}  // namespace rlalgo::serve::detail
