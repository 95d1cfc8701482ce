// A configuration tree whose every value knows where it was written.
//
// Scalars are typed as PyYAML's safe loader does (YAML 1.1): yes/no/on/off are booleans, ~ and nothing are null, 1_000,
// 0x1F, 0b101 and 012 (octal) are integers.
// Departure: 1e-5, which PyYAML leaves a string, is a number here; the spelling is kept in `text`, so a key that wants
// text still gets it.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/printable.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::config {

// file:line:column, or the command-line option that set the value.
struct Place {
  std::string file = {};
  int line = 0;    // 1-based; 0 = unknown
  int column = 0;  // 1-based
  std::string option = {};

  [[nodiscard]] bool command_line() const { return !option.empty(); }
  [[nodiscard]] std::string text() const {
    if (command_line()) return "command line " + option;
    return line > 0 ? file + ":" + std::to_string(line) : file;
  }
};

enum class Kind { null, boolean, integer, number, string, sequence, mapping };

struct Member;

struct Node {
  Kind kind = Kind::null;
  bool boolean = false;
  std::int64_t integer = 0;
  double number = 0.0;          // also set for integers
  std::string text = {};        // a scalar as it was spelled
  bool quoted = false;          // a quoted scalar is always a string
  std::vector<Node> items;      // sequence
  std::vector<Member> members;  // mapping, in file order, keys unique
  Place place;

  [[nodiscard]] bool scalar() const { return kind != Kind::sequence && kind != Kind::mapping; }
  [[nodiscard]] inline const Node* find(std::string_view key) const;
  [[nodiscard]] inline Node* find(std::string_view key);
};

struct Member {
  std::string key;
  Place place;  // of the key
  Node value;
};

inline const Node* Node::find(std::string_view key) const {
  for (const Member& member : members)
    if (member.key == key) return &member.value;
  return nullptr;
}
inline Node* Node::find(std::string_view key) {
  for (Member& member : members)
    if (member.key == key) return &member.value;
  return nullptr;
}

namespace detail {

// The text without '_' between digits and without a leading '+'.
inline std::string bare_number(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != '_') out += c;
  if (!out.empty() && out.front() == '+') out.erase(0, 1);
  return out;
}

inline bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

}  // namespace detail

// An integer of YAML 1.1: decimal, 0b, 0x, or octal with a leading 0; '_' may separate digits.
[[nodiscard]] inline std::optional<std::int64_t> parse_integer(std::string_view text) {
  if (text.empty() || text.front() == '_') return std::nullopt;
  std::string bare = detail::bare_number(text);
  const bool negative = !bare.empty() && bare.front() == '-';
  std::string_view digits = std::string_view(bare).substr(negative ? 1 : 0);
  int base = 10;
  if (digits.starts_with("0x"))
    base = 16;
  else if (digits.starts_with("0b"))
    base = 2;
  else if (digits.size() > 1 && digits.front() == '0')
    base = 8;
  if (base == 16 || base == 2) digits.remove_prefix(2);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (digits.empty() || digits.front() == '-' || error != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return negative ? -value : value;
}

// A floating-point number: digits with a dot or an exponent or both, or .inf, -.inf, .nan.
[[nodiscard]] inline std::optional<double> parse_number(std::string_view text) {
  if (text.empty() || text.front() == '_') return std::nullopt;
  std::string bare = detail::bare_number(text);
  const bool negative = !bare.empty() && bare.front() == '-';
  const std::string_view magnitude = std::string_view(bare).substr(negative ? 1 : 0);
  if (magnitude == ".inf" || magnitude == ".Inf" || magnitude == ".INF")
    return negative ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  if (!negative && (magnitude == ".nan" || magnitude == ".NaN" || magnitude == ".NAN"))
    return std::numeric_limits<double>::quiet_NaN();
  if (!detail::all_of(magnitude, "0123456789.eE+-") || magnitude.front() == '-' || magnitude.front() == '+' ||
      (magnitude.front() != '.' && (magnitude.front() < '0' || magnitude.front() > '9')))
    return std::nullopt;
  if (magnitude.find_first_of(".eE") == std::string_view::npos) return std::nullopt;
  double value = 0.0;
  const auto [end, error] = std::from_chars(magnitude.data(), magnitude.data() + magnitude.size(), value);
  if (end != magnitude.data() + magnitude.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {  // infinity and zero, as in Python
    const std::size_t exponent = magnitude.find_first_of("eE");
    const bool small = exponent != std::string_view::npos ? magnitude[exponent + 1] == '-'
                                                          : magnitude.front() == '0' || magnitude.front() == '.';
    value = small ? 0.0 : std::numeric_limits<double>::infinity();
  } else if (error != std::errc()) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

// A decimal integer that 64 bits do not hold.
[[nodiscard]] inline std::optional<double> parse_large_integer(std::string_view text) {
  if (text.empty() || text.front() == '_') return std::nullopt;
  const std::string bare = detail::bare_number(text);
  const bool negative = !bare.empty() && bare.front() == '-';
  const std::string_view digits = std::string_view(bare).substr(negative ? 1 : 0);
  if (!detail::all_of(digits, "0123456789") || digits.front() == '0') return std::nullopt;
  const double value = parse_number(std::string(digits) + ".").value_or(std::numeric_limits<double>::infinity());
  return negative ? -value : value;
}

[[nodiscard]] inline std::optional<bool> parse_boolean(std::string_view text) {
  for (const std::string_view yes : {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})
    if (text == yes) return true;
  for (const std::string_view no : {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})
    if (text == no) return false;
  return std::nullopt;
}

[[nodiscard]] inline bool is_null_text(std::string_view text) {
  return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
}

// A scalar as YAML 1.1 types it.
[[nodiscard]] inline Node make_scalar(std::string text, bool quoted, Place place) {
  Node node;
  node.quoted = quoted;
  node.place = std::move(place);
  if (quoted) {
    node.kind = Kind::string;
  } else if (is_null_text(text)) {
    node.kind = Kind::null;
  } else if (const auto boolean = parse_boolean(text)) {
    node.kind = Kind::boolean;
    node.boolean = *boolean;
  } else if (const auto integer = parse_integer(text)) {
    node.kind = Kind::integer;
    node.integer = *integer;
    node.number = static_cast<double>(*integer);
  } else if (auto number = parse_number(text); number || (number = parse_large_integer(text))) {
    node.kind = Kind::number;
    node.number = *number;
  } else {
    node.kind = Kind::string;
  }
  node.text = std::move(text);
  return node;
}

// What a value is, for an error text.
[[nodiscard]] inline std::string describe(const Node& node) {
  switch (node.kind) {
    case Kind::null:
      return "nothing";
    case Kind::boolean:
      return "the boolean " + node.text;
    case Kind::integer:
      return "the integer " + core::shortened(node.text, 60);
    case Kind::number:
      return std::isnan(node.number) ? node.text + " (not a number)" : "the number " + core::shortened(node.text, 60);
    case Kind::string:
      return "the text \"" + core::shortened(node.text, 60) + "\"";
    case Kind::sequence:
      return "a list of " + std::to_string(node.items.size());
    case Kind::mapping:
      return "a mapping";
  }
  return {};
}

// The tree as JSON, for keys whose value is free-form.
[[nodiscard]] inline data::Json to_json(const Node& node) {
  switch (node.kind) {
    case Kind::null:
      return nullptr;
    case Kind::boolean:
      return node.boolean;
    case Kind::integer:
      return node.integer;
    case Kind::number:
      return node.number;
    case Kind::string:
      return node.text;
    case Kind::sequence: {
      data::Json list = data::Json::array();
      for (const Node& item : node.items) list.push_back(to_json(item));
      return list;
    }
    case Kind::mapping:
      break;
  }
  data::Json object = data::Json::object();
  for (const Member& member : node.members) object[member.key] = to_json(member.value);
  return object;
}

}  // namespace rlalgo::config
