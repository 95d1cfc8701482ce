// Definitions of schema_reader.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/detail/number_pattern.hpp>
#include <rlalgo/serve/detail/scalar_patterns.hpp>
#include <rlalgo/serve/detail/schema_merge.hpp>
#include <rlalgo/serve/detail/schema_reader.hpp>
#include <rlalgo/serve/pattern.hpp>

namespace rlalgo::serve::detail {

RLALGO_INLINE std::string SchemaReader::any(int levels) const {
  std::string out = scalars_.text() + "|" + scalars_.number() + "|true|false|null";
  if (levels > 0) out += "|" + any_object(levels) + "|" + listed(any(levels - 1), 0, -1, "\\[", "\\]");
  return "(" + out + ")";
}

RLALGO_INLINE std::string SchemaReader::any_object(int levels) const {
  return listed(scalars_.text() + ":" + space_ + any(levels - 1), 0, -1, "\\{", "\\}");
}

RLALGO_INLINE std::string SchemaReader::listed(const std::string& item, std::int64_t least, std::int64_t most,
                                               const std::string& open, const std::string& close) const {
  if (most == 0) return open + close;
  return open + "(" + group_mark + "," + std::to_string(least) + "," + (most < 0 ? "" : std::to_string(most)) + ";," +
         space_ + part_mark + item + ")" + close;
}

RLALGO_INLINE SchemaReader::Text SchemaReader::of(const Json& schema, const std::string& at, int depth) {
  if (depth > deepest) refuse_schema("a schema nested more than " + std::to_string(deepest) + " levels deep", at);
  std::vector<std::string> followed;
  const Json own = merger_.flattened(schema, at, followed);
  Text out;
  if (enter(followed)) out = plain(own, at, depth);
  leave(followed);
  if (out && out->size() > most_text) throw SchemaTooLarge{at};
  return out;
}

RLALGO_INLINE SchemaReader::Text SchemaReader::plain(const Json& schema, const std::string& at, int depth) {
  if (schema.is_boolean()) return schema.get<bool>() ? Text(any(3)) : std::nullopt;
  if (!schema.is_object()) refuse_schema(quoted(schema), at);
  check_keywords(schema, at);
  if (schema.contains("enum")) return enumerated(schema, at, depth);
  for (const char* name : {"anyOf", "oneOf"})
    if (schema.contains(name)) return alternatives(schema, name, at, depth);
  std::vector<Json> types;
  if (schema.contains("type")) {
    for (const Json& one : schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]}))
      types.push_back(one);
    if (types.empty()) refuse_schema("type " + quoted(schema["type"]), at + "/type");
  } else {
    // Of all types, those that the keywords are about.
    const auto about = [&](std::initializer_list<const char*> names) {
      return std::any_of(names.begin(), names.end(), [&](const char* name) { return schema.contains(name); });
    };
    if (about({"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
               "maxProperties", "unevaluatedProperties"}))
      types.emplace_back("object");
    if (about({"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "unevaluatedItems"}))
      types.emplace_back("array");
    if (about({"pattern", "minLength", "maxLength", "format"})) types.emplace_back("string");
    if (about({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}))
      types.emplace_back("number");
    if (types.empty()) return any(3);
  }
  if (types.size() == 1) return typed(schema, types.front(), at, depth);
  std::string out;
  for (const Json& type : types)
    if (const Text one = typed(schema, type, at, depth)) out = either(out, *one);
  return out.empty() ? Text() : "(" + out + ")";
}

RLALGO_INLINE SchemaReader::Text SchemaReader::typed(const Json& schema, const Json& type, const std::string& at,
                                                     int depth) {
  if (type == "string") return scalars_.string(schema, at);
  if (type == "integer" || type == "number") return scalars_.number(schema, type == "number", at);
  if (type == "boolean") return "(true|false)";
  if (type == "null") return "null";
  if (type == "array") return array(schema, at, depth);
  if (type == "object") return object(schema, at, depth);
  refuse_schema("type " + quoted(type), at + "/type", "use string, number, integer, boolean, null, array or object");
}

RLALGO_INLINE SchemaReader::Text SchemaReader::alternatives(const Json& schema, const char* name, const std::string& at,
                                                            int depth) {
  const Json& list = schema[name];
  const std::string place = at + "/" + name;
  if (!list.is_array() || list.empty()) refuse_schema(std::string(name) + " " + quoted(list), place);
  Json rest = schema;
  rest.erase(name);
  std::string out;
  std::vector<std::pair<std::size_t, Json>> chosen;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string own = place + "/" + std::to_string(i);
    std::vector<std::string> followed;
    const Json branch = merger_.merged(rest, merger_.flattened(list[i], own, followed), own);
    const Text one = enter(followed) ? of(branch, own, depth + 1) : Text();
    leave(followed);
    if (branch == false) continue;
    if (name == std::string_view("oneOf"))
      for (const auto& [j, other] : chosen)
        if (!apart(branch, other, own) || !apart(other, branch, own))
          refuse_schema(
              "oneOf whose alternatives " + std::to_string(j) + " and " + std::to_string(i) + " may both hold", own,
              "use anyOf, or tell them apart by type or by a required property with const");
    chosen.emplace_back(i, branch);
    if (one) out = either(out, *one);
  }
  return out.empty() ? Text() : "(" + out + ")";
}

RLALGO_INLINE bool SchemaReader::apart(const Json& a, const Json& b, const std::string& at, int depth) {
  if (a == false || b == false) return true;
  if (!a.is_object() || !b.is_object() || depth > 4) return false;
  if (a.contains("enum")) {
    const std::vector<Json> values = values_of(a, at, depth);
    return std::none_of(values.begin(), values.end(), [&](const Json& value) { return fits(value, b, at, depth); });
  }
  if (b.contains("enum")) return apart(b, a, at, depth);
  const auto types = [](const Json& schema) {
    std::set<std::string> out;
    if (!schema.contains("type")) return out;
    for (const Json& one : schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]}))
      if (one.is_string()) out.insert(one == "integer" ? "number" : one.get<std::string>());
    return out;
  };
  const std::set<std::string> own = types(a), other = types(b);
  if (own.empty() || other.empty()) return false;
  std::set<std::string> common;
  for (const std::string& type : own)
    if (other.contains(type)) common.insert(type);
  if (common.empty()) return true;
  if (common != std::set<std::string>{"object"}) return false;
  const auto properties = [](const Json& schema) { return schema.value("properties", Json::object()); };
  const auto required = [](const Json& schema) { return schema.value("required", Json::array()); };
  const auto needs = [](const Json& list, const std::string& name) {
    return std::find(list.begin(), list.end(), Json(name)) != list.end();
  };
  const Json mine = properties(a), theirs = properties(b);
  if (mine.empty()) return false;  // a map may have any name
  const Json must = required(b);
  for (const Json& name : must)
    if (name.is_string() && !mine.contains(name.get_ref<const std::string&>()) &&
        !needs(required(a), name.get_ref<const std::string&>()))
      return true;
  for (const auto& [name, schema] : mine.items()) {
    if (!needs(required(a), name)) continue;
    if (!theirs.contains(name)) {
      if (b.contains("additionalProperties") && b["additionalProperties"] == false && !b.contains("patternProperties"))
        return true;
    } else if (apart(flat(schema, at), flat(theirs[name], at), at, depth + 1)) {
      return true;
    }
  }
  return false;
}

RLALGO_INLINE SchemaReader::Text SchemaReader::array(const Json& schema, const std::string& at, int depth) {
  const std::int64_t least = scalars_.count(schema, "minItems", 0, at);
  std::int64_t most = scalars_.count(schema, "maxItems", -1, at);
  const Json prefix = schema.value("prefixItems", Json::array());
  if (!prefix.is_array()) refuse_schema("prefixItems " + quoted(prefix), at + "/prefixItems");
  const bool unique = schema.contains("uniqueItems") && schema["uniqueItems"] == true;
  std::vector<std::string> first;
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    const Text one = below("*", prefix[i], at + "/prefixItems/" + std::to_string(i), depth + 1);
    if (!one) {
      most = most < 0 ? static_cast<std::int64_t>(i) : std::min(most, static_cast<std::int64_t>(i));
      break;
    }
    first.push_back(*one);
  }
  const auto known = static_cast<std::int64_t>(prefix.size());
  const bool closed =
      schema.contains("unevaluatedItems") && schema["unevaluatedItems"] == false && !schema.contains("items");
  Text rest;
  if (most < 0 || most > known) {
    if (unique && prefix.empty() && schema.contains("items") && most != 1 && (most != 0))
      return distinct(schema, least, most, at, depth);
    rest = closed                     ? Text()
           : schema.contains("items") ? below("*", schema["items"], at + "/items", depth + 1)
                                      : Text(any(2));
    if (!rest) most = known;
  }
  if (most >= 0 && most < least) return std::nullopt;
  if (unique && most != 0 && most != 1)
    refuse_schema("uniqueItems of items that may be anything", at + "/uniqueItems",
                  "give items with an enum, or whole numbers between bounds");
  const auto n = static_cast<std::int64_t>(first.size());
  if (n == 0) return listed(rest.value_or(""), least, rest ? most : 0, "\\[", "\\]");
  // From the last item on: what may follow.
  std::string tail;
  const std::int64_t all = most < 0 ? n : std::min(n, most);
  if (rest && (most < 0 || most > n))
    tail = std::string("(") + group_mark + "," + std::to_string(std::max<std::int64_t>(0, least - n)) + "," +
           (most < 0 ? "" : std::to_string(most - n)) + ";" + part_mark + "," + space_ + *rest + ")";
  for (std::int64_t i = all; i-- > 0;) {
    tail = (i == 0 ? "" : "," + space_) + first[static_cast<std::size_t>(i)] + tail;
    if (i >= least) tail = "(" + tail + ")?";
  }
  return "\\[" + tail + "\\]";
}

RLALGO_INLINE SchemaReader::Text SchemaReader::distinct(const Json& schema, std::int64_t least, std::int64_t most,
                                                        const std::string& at, int depth) {
  const auto values = finite(schema["items"], at + "/items", depth + 1);
  if (!values) {
    // Texts and numbers are kept apart beside the expression, which may leave them room to differ.
    const Json items = flat(schema["items"], at + "/items");
    const std::vector<std::string> scalars = {"string", "integer", "number"};
    const auto is_scalar = [&](const Json& type) {
      return type.is_string() &&
             std::find(scalars.begin(), scalars.end(), type.get_ref<const std::string&>()) != scalars.end();
    };
    const bool open = items.is_object() && items.contains("type") && !items.contains("pattern") &&
                      !items.contains("format") && !items.contains("multipleOf") && !items.contains("anyOf") &&
                      !items.contains("oneOf");
    const Json types = !open ? Json::array() : items["type"].is_array() ? items["type"] : Json::array({items["type"]});
    if (types.empty() || !std::all_of(types.begin(), types.end(), is_scalar))
      refuse_schema("uniqueItems of items of this kind", at + "/uniqueItems",
                    "give items an enum, or let them be texts or numbers without pattern, format and multipleOf");
    const Text item = below("*", schema["items"], at + "/items", depth + 1);
    if (!item) return least > 0 ? Text() : Text("\\[\\]");
    unique_.push_back(path_);
    return listed(*item, least, most, "\\[", "\\]");
  }
  if (static_cast<std::int64_t>(values->size()) < least) return std::nullopt;
  if (values->empty()) return "\\[\\]";
  std::string out = std::string("(") + group_mark + "u" + std::to_string(least) + "," +
                    (most < 0 ? "" : std::to_string(most)) + ";," + space_;
  for (const Json& value : *values) out += part_mark + literal(value);
  return "\\[" + out + ")\\]";
}

RLALGO_INLINE Json SchemaReader::property(const Json& schema, const std::string& name, const std::string& at,
                                          int depth) {
  const Json properties = schema.value("properties", Json::object());
  Json out = true;
  bool found = properties.contains(name);
  if (found) out = properties[name];
  const Json patterns = schema.value("patternProperties", Json::object());
  for (const auto& [pattern, value] : patterns.items()) {
    const Pattern names("\"" + scalars_.search(pattern, at + "/patternProperties") + "\"");
    if (!names.accepts(names.next(names.start(), Json(name).dump()))) continue;
    out = out == true ? value : Json{{"allOf", {out, value}}};
    found = true;
  }
  if (!found)
    out = schema.contains("additionalProperties")    ? schema["additionalProperties"]
          : schema.contains("unevaluatedProperties") ? schema["unevaluatedProperties"]
                                                     : Json(true);
  if (schema.contains("propertyNames") &&
      !fits(name, flat(schema["propertyNames"], at + "/propertyNames"), at + "/propertyNames", depth + 1))
    return false;
  return out;
}

RLALGO_INLINE SchemaReader::Text SchemaReader::object(const Json& schema, const std::string& at, int depth) {
  for (const char* name : {"properties", "patternProperties"})
    if (schema.contains(name) && !schema[name].is_object())
      refuse_schema(std::string(name) + " " + quoted(schema[name]), at + "/" + name);
  std::vector<std::string> names;
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, value] : properties.items()) names.push_back(name);
  std::set<std::string> required;
  if (schema.contains("required")) {
    if (!schema["required"].is_array()) refuse_schema("required " + quoted(schema["required"]), at + "/required");
    for (const Json& name : schema["required"]) {
      if (!name.is_string()) refuse_schema("required " + quoted(name), at + "/required");
      required.insert(name.get<std::string>());
      if (!properties.contains(name.get_ref<const std::string&>()) &&
          std::find(names.begin(), names.end(), name.get_ref<const std::string&>()) == names.end())
        names.push_back(name.get<std::string>());
    }
  }
  const std::int64_t least = scalars_.count(schema, "minProperties", 0, at),
                     most = scalars_.count(schema, "maxProperties", -1, at);
  if (names.empty() && (!schema.contains("properties") || least > 0)) return map(schema, least, most, at, depth);
  struct Member {
    std::string text;
    bool must;
  };
  std::vector<Member> members;
  for (const std::string& name : names) {
    const Text value = below(name, property(schema, name, at, depth), at + "/properties/" + name, depth + 1);
    if (value)
      members.push_back({literal(Json(name)) + ":" + space_ + *value, required.contains(name)});
    else if (required.contains(name))
      return std::nullopt;
  }
  // Counts are kept by members that must come, or do not come.
  for (Member& member : members)
    if (static_cast<std::int64_t>(required.size()) < least && !member.must) {
      member.must = true;
      required.insert(member.text);
    }
  if (static_cast<std::int64_t>(required.size()) < least) return std::nullopt;
  for (std::size_t i = members.size(); i-- > 0 && most >= 0 && static_cast<std::int64_t>(members.size()) > most;)
    if (!members[i].must) members.erase(members.begin() + static_cast<std::ptrdiff_t>(i));
  if (most >= 0 && static_cast<std::int64_t>(members.size()) > most) return std::nullopt;
  std::string out = std::string("(") + group_mark + "o," + space_;
  for (const Member& member : members) out += std::string(1, part_mark) + (member.must ? "!" : "?") + member.text;
  return members.empty() ? Text("\\{\\}") : "\\{" + out + ")\\}";
}

RLALGO_INLINE SchemaReader::Text SchemaReader::map(const Json& schema, std::int64_t least, std::int64_t most,
                                                   const std::string& at, int depth) {
  if (most >= 0 && most < least) return std::nullopt;
  // A name may come twice, and the reader keeps one of them.
  if (least > 1)
    refuse_schema("minProperties above 1 of an object whose names are open", at + "/minProperties", "name them");
  const Json patterns = schema.value("patternProperties", Json::object());
  if (patterns.size() > 1)
    refuse_schema("several patternProperties", at + "/patternProperties", "use one, or name the properties");
  Text name = scalars_.text();
  Json value = schema.contains("additionalProperties")    ? schema["additionalProperties"]
               : schema.contains("unevaluatedProperties") ? schema["unevaluatedProperties"]
                                                          : Json(true);
  Json names = {{"type", "string"}};
  std::string place = at + "/additionalProperties";
  if (patterns.size() == 1) {
    place = at + "/patternProperties";
    names["pattern"] = patterns.items().begin().key();
    value = patterns.items().begin().value();
  }
  if (schema.contains("propertyNames"))
    names = merger_.merged(names, flat(schema["propertyNames"], at + "/propertyNames"), at + "/propertyNames");
  if (names != Json{{"type", "string"}}) name = of(names, at + "/propertyNames", depth + 1);
  const Text one = most == 0 || !name ? Text() : value == true ? Text(any(2)) : below("*", value, place, depth + 1);
  if (!one) return least > 0 ? Text() : Text("\\{\\}");
  return listed(*name + ":" + space_ + *one, least, most, "\\{", "\\}");
}

RLALGO_INLINE bool SchemaReader::fits(const Json& value, const Json& schema, const std::string& at, int depth) {
  if (schema == true) return true;
  if (!schema.is_object()) return false;
  const auto is_type = [&](const Json& type) {
    if (type == "integer") return value.is_number() && (!value.is_number_float() || whole(value).has_value());
    return (type == "string" && value.is_string()) || (type == "number" && value.is_number()) ||
           (type == "boolean" && value.is_boolean()) || (type == "null" && value.is_null()) ||
           (type == "array" && value.is_array()) || (type == "object" && value.is_object());
  };
  if (schema.contains("type")) {
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    if (std::none_of(types.begin(), types.end(), is_type)) return false;
  }
  if (schema.contains("not") && fits(value, flat(schema["not"], at + "/not"), at + "/not", depth + 1)) return false;
  if (schema.contains("enum")) {
    if (!schema["enum"].is_array() ||
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
      return false;
  }
  // Keywords of other types than the value's say nothing of it.
  static const std::vector<std::pair<const char*, std::vector<const char*>>> of_types = {
      {"string", {"pattern", "format", "minLength", "maxLength"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"}},
      {"array", {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}},
      {"object",
       {"properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
        "maxProperties"}}};
  Json rest = Json::object();
  for (const auto& [type, names] : of_types)
    if (is_type(type))
      for (const char* name : names)
        if (schema.contains(name)) rest[name] = schema[name];
  for (const char* name : {"anyOf", "oneOf"})
    if (schema.contains(name)) rest[name] = schema[name];
  if (rest.empty()) return true;
  for (const char* type : {"string", "number", "boolean", "null", "array", "object"})
    if (is_type(type)) rest["type"] = type;
  const std::size_t lists = unique_.size();
  const Text expression = of(rest, at, depth + 1);
  unique_.resize(lists);  // a value is no place in the text
  if (!expression) return false;
  const Pattern pattern(*expression);
  return pattern.accepts(pattern.next(pattern.start(), value.dump()));
}

RLALGO_INLINE std::vector<Json> SchemaReader::values_of(const Json& schema, const std::string& at, int depth) {
  if (!schema["enum"].is_array() || schema["enum"].empty())
    refuse_schema("enum " + quoted(schema["enum"]), at + "/enum");
  std::vector<Json> out;
  Json rest = schema;
  rest.erase("enum");
  for (const Json& value : schema["enum"])
    if (fits(value, rest, at, depth) && std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  return out;
}

RLALGO_INLINE SchemaReader::Text SchemaReader::enumerated(const Json& schema, const std::string& at, int depth) {
  std::string out;
  for (const Json& value : values_of(schema, at, depth)) out = either(out, literal(value));
  return out.empty() ? Text() : "(" + out + ")";
}

RLALGO_INLINE std::optional<std::vector<Json>> SchemaReader::finite(const Json& given, const std::string& at,
                                                                    int depth) {
  if (depth > deepest) return std::nullopt;
  const Json schema = flat(given, at);
  if (!schema.is_object()) return std::nullopt;
  if (schema.contains("enum")) return values_of(schema, at, depth);
  std::vector<Json> out;
  const auto add = [&](const Json& value) {
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  };
  for (const char* name : {"anyOf", "oneOf"}) {
    if (!schema.contains(name) || !schema[name].is_array()) continue;
    Json rest = schema;
    rest.erase(name);
    for (const Json& one : schema[name]) {
      const auto values = finite(merger_.merged(rest, flat(one, at), at), at, depth + 1);
      if (!values) return std::nullopt;
      for (const Json& value : *values) add(value);
    }
    return out;
  }
  if (!schema.contains("type")) return std::nullopt;
  for (const Json& type : schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]})) {
    if (type == "null") {
      add(nullptr);
    } else if (type == "boolean") {
      add(false);
      add(true);
    } else if (type == "integer") {
      const Text expression = scalars_.number(schema, false, at);
      const auto edge = [&](const char* name, const char* excluded, int step) -> std::optional<std::int64_t> {
        for (const char* one : {name, excluded})
          if (schema.contains(one) && schema[one].is_number() && std::abs(schema[one].get<double>()) < 1e15)
            return static_cast<std::int64_t>(step > 0 ? std::ceil(schema[one].get<double>())
                                                      : std::floor(schema[one].get<double>()));
        return std::nullopt;
      };
      const auto from = edge("minimum", "exclusiveMinimum", 1), to = edge("maximum", "exclusiveMaximum", -1);
      if (!from || !to || *to - *from > 255) return std::nullopt;
      if (!expression) continue;
      const Pattern pattern(*expression);
      for (std::int64_t value = *from; value <= *to; ++value)
        if (pattern.accepts(pattern.next(pattern.start(), std::to_string(value)))) add(value);
    } else {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace rlalgo::serve::detail
