// Definitions of scalar_patterns.hpp.
#pragma once

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/detail/number_pattern.hpp>
#include <rlalgo/serve/detail/scalar_patterns.hpp>
#include <rlalgo/serve/detail/schema_merge.hpp>
#include <rlalgo/serve/detail/text_formats.hpp>
#include <rlalgo/serve/pattern.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve::detail {

RLALGO_INLINE void check_keywords(const Json& schema, const std::string& at) {
  static const std::vector<std::string> known = {"type",
                                                 "enum",
                                                 "const",
                                                 "anyOf",
                                                 "oneOf",
                                                 "allOf",
                                                 "not",
                                                 "$ref",
                                                 "properties",
                                                 "required",
                                                 "items",
                                                 "additionalProperties",
                                                 "prefixItems",
                                                 "minItems",
                                                 "maxItems",
                                                 "patternProperties",
                                                 "uniqueItems",
                                                 "propertyNames",
                                                 "minProperties",
                                                 "maxProperties",
                                                 "minimum",
                                                 "maximum",
                                                 "minLength",
                                                 "maxLength",
                                                 "multipleOf",
                                                 "pattern",
                                                 "exclusiveMinimum",
                                                 "exclusiveMaximum",
                                                 "format",
                                                 "additionalItems",
                                                 "nullable",
                                                 "title",
                                                 "description",
                                                 "unevaluatedItems",
                                                 "unevaluatedProperties"};
  for (const char* name : {"if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "contains",
                           "minContains", "maxContains", "contentEncoding", "contentMediaType", "contentSchema"})
    if (schema.contains(name)) refuse_schema(name, at + "/" + name);
  for (const char* name : {"unevaluatedItems", "unevaluatedProperties"})
    if (schema.contains(name) && !schema[name].is_boolean()) refuse_schema(name, at + "/" + name);
  if (schema.contains("not") && !schema.contains("enum"))
    refuse_schema("not", at + "/not", "say what may come; next to enum or const it may stand");
  const auto lower = [](std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
  };
  // Other words are notes; one that differs by its case, or by one letter, from a keyword is none.
  for (const auto& [name, value] : schema.items()) {
    if (std::find(known.begin(), known.end(), name) != known.end() || name.size() < 4) continue;
    for (const std::string& keyword : known) {
      const std::string a = lower(name), b = lower(keyword);
      std::size_t i = 0;
      while (i < std::min(a.size(), b.size()) && a[i] == b[i]) ++i;
      const std::string_view x = std::string_view(a).substr(i), y = std::string_view(b).substr(i);
      const bool near = (x.empty() && y.empty()) || (!x.empty() && !y.empty() && x.substr(1) == y.substr(1)) ||
                        (!x.empty() && x.substr(1) == y) || (!y.empty() && x == y.substr(1));
      if (near) refuse_schema(name + ", which is no keyword", at + "/" + name, "is " + keyword + " meant?");
    }
  }
}

RLALGO_INLINE std::int64_t ScalarPatterns::count(const Json& schema, const char* name, std::int64_t otherwise,
                                                 const std::string& at) {
  if (!schema.contains(name)) return otherwise;
  const auto number = whole(schema[name]);
  if (!number || *number < 0) refuse_schema(std::string(name) + " " + quoted(schema[name]), at + "/" + name);
  return *number;
}

RLALGO_INLINE ScalarPatterns::Text ScalarPatterns::checked(const std::string& expression, const std::string& at) {
  try {
    const Pattern pattern(expression);
  } catch (const Refusal& refusal) {
    const std::string text = refusal.what();
    if (text.find("two conditions that no text fulfils") != std::string::npos) return std::nullopt;
    const std::size_t from = text.find("found "), to = text.find(", at byte");
    refuse_schema(
        from == std::string::npos ? text : text.substr(from + 6, to == std::string::npos ? to : to - from - 6), at,
        "say it with literals, classes, groups and counts alone");
  }
  return expression;
}

RLALGO_INLINE std::string ScalarPatterns::search(const Json& pattern, const std::string& at) const {
  if (!pattern.is_string()) refuse_schema("pattern " + quoted(pattern), at);
  const std::string text = plain_expression(pattern.get_ref<const std::string&>());
  // ^ and $ belong to an alternative of the whole.
  std::vector<std::string> parts(1);
  int depth = 0;
  bool in_class = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '|' && depth == 0 && !in_class) {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
    if (c == '\\' && i + 1 < text.size()) parts.back() += text[++i];
    if (in_class)
      in_class = c != ']';
    else if (c == '[')
      in_class = true;
    else
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
  }
  std::string out;
  for (std::string part : parts) {
    const bool begins = part.starts_with('^');
    if (begins) part.erase(0, 1);
    const std::size_t last = part.find_last_not_of('\\', part.size() < 2 ? std::string::npos : part.size() - 2);
    const std::size_t backslashes = part.size() < 2 ? 0 : part.size() - 2 - (last == std::string::npos ? -1 : last);
    const bool ends = part.ends_with('$') && backslashes % 2 == 0;
    if (ends) part.pop_back();
    out = either(out, (begins ? "" : character_ + "*") + "(" + std::string(1, group_mark) + "j" + part + ")" +
                          (ends ? "" : character_ + "*"));
  }
  return "(" + out + ")";
}

RLALGO_INLINE std::string ScalarPatterns::format(const Json& name, const std::string& at) const {
  if (!name.is_string()) refuse_schema("format " + quoted(name), at);
  const auto& text = name.get_ref<const std::string&>();
  if (is_free_format(text)) return character_ + "*";
  if (const auto expression = format_expression(text)) return "(" + *expression + ")";
  refuse_schema("format " + quoted(name), at, std::string("known are ") + known_formats + "; or use pattern");
}

RLALGO_INLINE ScalarPatterns::Text ScalarPatterns::string(const Json& schema, const std::string& at) const {
  std::vector<std::string> conditions;
  const auto each = [&](const char* name, const auto& make) {
    if (!schema.contains(name)) return;
    const Json& given = schema[name];
    for (const Json& one : given.is_array() ? given : Json::array({given}))
      conditions.push_back(make(one, at + "/" + name));
  };
  each("pattern", [&](const Json& one, const std::string& place) {
    std::string out = search(one, place);
    (void)checked(out, place);
    return out;
  });
  each("format", [&](const Json& one, const std::string& place) { return format(one, place); });
  const std::int64_t least = count(schema, "minLength", 0, at), most = count(schema, "maxLength", -1, at);
  if (most >= 0 && most < least) return std::nullopt;
  if (least > 0 || most >= 0)
    conditions.push_back(character_ + "{" + std::to_string(least) + "," + (most < 0 ? "" : std::to_string(most)) + "}");
  if (conditions.empty()) return text_;
  std::string out = conditions.front();
  for (std::size_t i = 1; i < conditions.size(); ++i)
    out = std::string("(") + group_mark + "&" + out + part_mark + conditions[i] + ")";
  return checked("\"" + out + "\"", at);
}

// What the formats of a number say of its range.
template <class Range>
void number_formats(const Json& schema, const std::string& at, Range&& range) {
  if (!schema.contains("format")) return;
  struct Format {
    std::string_view name;
    double from, to;
  };
  static constexpr Format ranges[] = {{"int32", -2147483648.0, 2147483647.0},
                                      {"uint32", 0.0, 4294967295.0},
                                      {"int16", -32768.0, 32767.0},
                                      {"uint16", 0.0, 65535.0},
                                      {"int8", -128.0, 127.0},
                                      {"uint8", 0.0, 255.0},
                                      {"uint64", 0.0, 1e16}};
  static constexpr std::string_view free[] = {"int64", "int", "integer", "float", "double", "number", "decimal"};
  const Json given = schema["format"].is_array() ? schema["format"] : Json::array({schema["format"]});
  for (const Json& one : given) {
    const std::string name = one.is_string() ? one.get<std::string>() : std::string();
    const auto found =
        std::find_if(std::begin(ranges), std::end(ranges), [&](const Format& f) { return f.name == name; });
    if (found != std::end(ranges))
      range(found->from, found->to);
    else if (std::find(std::begin(free), std::end(free), name) == std::end(free))
      refuse_schema("format " + quoted(one) + " of a number", at + "/format", "use minimum and maximum");
  }
}

RLALGO_INLINE ScalarPatterns::Text ScalarPatterns::number(const Json& schema, bool fraction,
                                                          const std::string& at) const {
  std::optional<SignedBound> low, high;
  const auto narrow = [&](const Json& from, const char* name, bool excluded, bool lower) {
    if (!from.contains(name)) return;
    if (!from[name].is_number()) refuse_schema(std::string(name) + " " + quoted(from[name]), at + "/" + name);
    const SignedBound next{decimal(from[name].dump()), excluded};
    std::optional<SignedBound>& own = lower ? low : high;
    const auto order = [](const SignedDecimal& a, const SignedDecimal& b) {
      if (a.negative != b.negative) return a.negative ? -1 : 1;
      return a.negative ? -compare(a.size, b.size) : compare(a.size, b.size);
    };
    const int sign = own ? order(next.at, own->at) * (lower ? 1 : -1) : 1;
    if (sign > 0 || (sign == 0 && excluded)) own = next;
  };
  narrow(schema, "minimum", false, true);
  narrow(schema, "exclusiveMinimum", true, true);
  narrow(schema, "maximum", false, false);
  narrow(schema, "exclusiveMaximum", true, false);
  number_formats(schema, at, [&](double from, double to) {
    Json range = {{"minimum", from}, {"maximum", to}};
    narrow(range, "minimum", false, true);
    narrow(range, "maximum", false, false);
  });
  std::string out = fraction ? number_ : whole_;
  const bool bounded = low || high;
  if (bounded) out = numbers_between(low, high, fraction);
  if (out.empty()) return std::nullopt;
  if (!schema.contains("multipleOf")) return out;
  const Json& step = schema["multipleOf"];
  const std::string place = at + "/multipleOf";
  const auto both = [&](const std::string& other) {
    const std::string range = bounded ? out : fraction ? numbers_between(std::nullopt, std::nullopt, true) : whole_;
    return checked(std::string("(") + group_mark + "&" + range + part_mark + other + ")", place);
  };
  if (const auto whole_step = whole(step); whole_step && *whole_step > 0) {
    if (*whole_step <= 2000) return both(std::string("-?(") + group_mark + "m" + std::to_string(*whole_step) + ")");
    refuse_schema("multipleOf " + quoted(step), place, "at most 2000, or an enum");
  }
  // Halves, quarters …: other fractions are none of a double, and readers disagree about their multiples.
  for (int k = 1; step.is_number() && k <= 4; ++k) {
    const double unit = std::ldexp(1.0, -k);
    if (step.get<double>() != unit) continue;
    std::string ends;
    for (int j = 1; j < (1 << k); ++j) {
      const std::string text = decimal(Json(j * unit).dump()).size.fraction;
      ends = either(ends, text + "0{0,2}");
    }
    return both(whole_ + "(\\.(0{1,2}|" + ends + "))?");
  }
  refuse_schema("multipleOf " + quoted(step), place, "a whole number up to 2000, or 0.5, 0.25, 0.125, 0.0625");
}

}  // namespace rlalgo::serve::detail
