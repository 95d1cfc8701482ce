// Definitions of schema_pattern.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/pattern.hpp>
#include <rlalgo/serve/refusal.hpp>
#include <rlalgo/serve/schema_pattern.hpp>

namespace rlalgo::serve {

namespace detail {

class SchemaReader {
 public:
  SchemaReader(const Json& root, bool spaces) : root_(root), space_(spaces ? " ?" : "") {}

  [[nodiscard]] std::string of(const Json& schema, int depth = 0) {
    if (depth > deepest) fail("a schema nested more than " + std::to_string(deepest) + " levels deep, or in itself");
    if (schema.is_boolean() && schema.get<bool>()) return any(3);
    if (!schema.is_object()) fail(quoted(schema));
    for (const char* name : {"allOf", "not", "if", "patternProperties", "propertyNames", "dependentRequired",
                             "dependentSchemas", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                             "multipleOf", "uniqueItems", "contains", "prefixItems", "minProperties", "maxProperties"})
      if (schema.contains(name)) fail(name);
    if (schema.contains("$ref")) return of(referred(schema["$ref"]), depth + 1);
    if (schema.contains("enum")) return one_of(schema["enum"], [&](const Json& value) { return literal(value); });
    if (schema.contains("const")) return literal(schema["const"]);
    for (const char* name : {"anyOf", "oneOf"})
      if (schema.contains(name)) return one_of(schema[name], [&](const Json& choice) { return of(choice, depth + 1); });
    if (!schema.contains("type")) return schema.contains("properties") ? object(schema, depth) : any(3);
    const Json& type = schema["type"];
    if (type.is_array()) return one_of(type, [&](const Json& one) { return typed(schema, one, depth); });
    return typed(schema, type, depth);
  }

  // Any value, with objects and lists in it `levels` deep.
  [[nodiscard]] std::string any(int levels) const {
    std::string out = text_ + "|" + number_ + "|true|false|null";
    if (levels > 0) out += "|" + any_object(levels) + "|" + listed(any(levels - 1), 0, -1);
    return "(" + out + ")";
  }
  [[nodiscard]] std::string any_object(int levels) const {
    const std::string member = text_ + ":" + space_ + any(levels - 1);
    return "\\{(" + member + "(," + space_ + member + ")*)?\\}";
  }

 private:
  static constexpr int deepest = 40;

  [[noreturn]] static void fail(const std::string& found) {
    refuse_request(400, 24,
                   {.what = "a JSON schema for structured output cannot be used",
                    .found = found,
                    .expected = "types, properties, items, enum, const, anyOf, $ref, pattern and lengths"});
  }

  template <class Each>
  [[nodiscard]] static std::string one_of(const Json& list, Each&& each) {
    if (!list.is_array() || list.empty()) fail(quoted(list));
    std::string out;
    for (const Json& one : list) out += (out.empty() ? "(" : "|") + each(one);
    return out + ")";
  }

  [[nodiscard]] static std::string literal(const Json& value) { return escaped(value.dump()); }

  [[nodiscard]] const Json& referred(const Json& reference) const {
    if (reference.is_string() && reference.get_ref<const std::string&>().starts_with("#/")) {
      try {
        return root_.at(Json::json_pointer(reference.get_ref<const std::string&>().substr(1)));
      } catch (const Json::exception&) {
        fail("$ref to " + quoted(reference));
      }
    }
    fail("$ref to " + quoted(reference));
  }

  [[nodiscard]] static std::int64_t count(const Json& schema, const char* name, std::int64_t otherwise) {
    if (!schema.contains(name)) return otherwise;
    const auto number = whole(schema[name]);
    if (!number || *number < 0) fail(std::string(name) + " " + quoted(schema[name]));
    return *number;
  }

  [[nodiscard]] std::string typed(const Json& schema, const Json& type, int depth) {
    if (type == "string") return string(schema);
    if (type == "integer") return "-?(0|[1-9][0-9]{0,15})";
    if (type == "number") return number_;
    if (type == "boolean") return "(true|false)";
    if (type == "null") return "null";
    if (type == "array") {
      const std::string item = schema.contains("items") ? of(schema["items"], depth + 1) : any(2);
      return listed(item, count(schema, "minItems", 0), count(schema, "maxItems", -1));
    }
    if (type == "object") return schema.contains("properties") ? object(schema, depth) : any_object(3);
    fail("type " + quoted(type));
  }

  [[nodiscard]] std::string string(const Json& schema) const {
    if (schema.contains("pattern")) {
      if (!schema["pattern"].is_string()) fail("pattern " + quoted(schema["pattern"]));
      std::string inner = schema["pattern"].get<std::string>();
      // Found anywhere in the text unless it is anchored, as JSON schema has it.
      const bool begins = inner.starts_with("^"), ends = inner.ends_with("$") && !inner.ends_with("\\$");
      inner = inner.substr(begins ? 1 : 0, inner.size() - (begins ? 1 : 0) - (ends ? 1 : 0));
      // What stands for any character would stand for the end of the text, too.
      for (std::size_t i = 0; i < inner.size(); ++i) {
        const bool escape = inner[i] == '\\' && i + 1 < inner.size();
        const char c = escape ? inner[++i] : inner[i];
        if (c == '"' || c == '\\' || (!escape && (c == '.' || inner.compare(i, 2, "[^") == 0)) ||
            (escape && std::string_view("DWSsnrtfvxu0").find(c) != std::string_view::npos))
          fail("pattern with a character that JSON escapes, or any of many: " + quoted(schema["pattern"]));
      }
      return "\"" + (begins ? "" : character_ + "*") + "(" + inner + ")" + (ends ? "" : character_ + "*") + "\"";
    }
    const std::int64_t least = count(schema, "minLength", 0), most = count(schema, "maxLength", -1);
    if (least == 0 && most < 0) return text_;
    return "\"" + character_ + "{" + std::to_string(least) + "," + (most < 0 ? "" : std::to_string(most)) + "}\"";
  }

  [[nodiscard]] std::string listed(const std::string& item, std::int64_t least, std::int64_t most) const {
    if (most >= 0 && most < least) fail("maxItems below minItems");
    if (most == 0) return "\\[\\]";
    const std::string more = "(," + space_ + item + "){" + std::to_string(std::max<std::int64_t>(least - 1, 0)) + "," +
                             (most < 0 ? "" : std::to_string(most - 1)) + "}";
    const std::string some = item + more;
    return "\\[" + (least == 0 ? "(" + some + ")?" : some) + "\\]";
  }

  [[nodiscard]] std::string object(const Json& schema, int depth) {
    if (!schema["properties"].is_object()) fail("properties " + quoted(schema["properties"]));
    std::set<std::string> required;
    if (schema.contains("required")) {
      if (!schema["required"].is_array()) fail("required " + quoted(schema["required"]));
      for (const Json& name : schema["required"]) {
        if (!name.is_string() || !schema["properties"].contains(name.get_ref<const std::string&>()))
          fail("required " + quoted(name));
        required.insert(name.get<std::string>());
      }
    }
    std::vector<std::pair<std::string, bool>> members;
    for (const auto& [name, value] : schema["properties"].items())
      members.emplace_back(literal(Json(name)) + ":" + space_ + of(value, depth + 1), required.contains(name));
    // behind: what may follow a member; first: what may stand where none has come yet.
    std::string behind, first;
    for (std::size_t i = members.size(); i-- > 0;) {
      const auto& [member, must] = members[i];
      const std::string here = member + behind;
      first = must ? here : first.empty() ? "(" + here + ")?" : "(" + here + "|" + first + ")";
      behind = (must ? "," + space_ + member : "(," + space_ + member + ")?") + behind;
    }
    return "\\{" + first + "\\}";
  }

  const Json& root_;
  std::string space_;
  const std::string character_ = "([^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-F]{4})";
  const std::string text_ = "\"" + character_ + "*\"";
  const std::string number_ = "-?(0|[1-9][0-9]{0,15})(\\.[0-9]{1,16})?([eE][+-]?[0-9]{1,3})?";
};

}  // namespace detail

RLALGO_INLINE std::string schema_pattern(const Json& schema, bool spaces) {
  return detail::SchemaReader(schema, spaces).of(schema);
}

RLALGO_INLINE std::string any_object_pattern(bool spaces) {
  const Json none;
  return detail::SchemaReader(none, spaces).any_object(3);
}

}  // namespace rlalgo::serve
