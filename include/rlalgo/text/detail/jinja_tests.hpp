// Jinja2's tests: "x is defined", "x is divisibleby 3" …
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/text/detail/jinja_methods.hpp>
#include <rlalgo/text/detail/jinja_operators.hpp>
#include <rlalgo/text/detail/jinja_value.hpp>

namespace rlalgo::text::detail {

// op: == != < <= > >=
[[gnu::cold]] inline bool compare_values(const Value& a, std::string_view op, const Value& b) {
  if (op == "==") return a.equals(b);
  if (op == "!=") return !a.equals(b);
  if (op == "<") return less(a, b, "<");
  if (op == ">") return less(b, a, ">");
  const bool unordered = a.is_number() && b.is_number() && (std::isnan(a.real()) || std::isnan(b.real()));
  if (op == "<=") return !less(b, a, "<=") && !unordered;
  return !less(a, b, ">=") && !unordered;
}

[[gnu::cold]] inline bool is_iterable(const Value& value) {
  if (value.is_undefined() || value.is_sequence() || value.is_dict() || value.is_string()) return true;
  return value.as<Generator>() != nullptr || value.as<View>() != nullptr;
}

// Fails for a name that no test has.
[[gnu::cold]] inline bool apply_test(Runtime& runtime, const std::string& name, const Value& value,
                                     const Arguments& arguments) {
  charge_texts(arguments);
  const auto other = [&]() -> const Value& {
    const Value* found = arguments.find(0, "other");
    if (found == nullptr) fail("the test '" + name + "' needs an argument");
    return *found;
  };
  static constexpr std::string_view with_argument[] = {
      "divisibleby", "eq", "equalto", "==",          "ne", "!=", "lt", "lessthan", "<",
      "le",          "<=", "gt",      "greaterthan", ">",  "ge", ">=", "in",       "sameas"};
  const bool takes_argument =
      std::find(std::begin(with_argument), std::end(with_argument), name) != std::end(with_argument);
  if (arguments.positional.size() + arguments.named.size() > (takes_argument ? 1 : 0)) {
    fail("the test '" + name + "' was given too many arguments");
  }
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "true") return value.is_bool() && value.boolean();
  if (name == "false") return value.is_bool() && !value.boolean();
  if (name == "boolean") return value.is_bool();
  if (name == "string") return value.is_string();
  if (name == "number") return value.is_number();
  if (name == "integer") return value.is_int();
  if (name == "float") return value.is_float();
  if (name == "mapping") return value.is_dict();
  if (name == "sequence") {
    // Whatever has a length and items by position: undefined too.
    return value.is_undefined() || value.is_sequence() || value.is_dict() || value.is_string();
  }
  if (name == "iterable") return is_iterable(value);
  if (name == "callable") return value.is_undefined() || (value.is_object() && value.object().callable());
  if (name == "odd" || name == "even" || name == "divisibleby") {
    const Value divisor = name == "divisibleby" ? other() : Value(2);
    const Value rest = Operators::apply("%", value, divisor);
    return name == "odd" ? rest.equals(1) : rest.equals(0);
  }
  if (name == "eq" || name == "equalto" || name == "==") return value.equals(other());
  if (name == "ne" || name == "!=") return !value.equals(other());
  if (name == "lt" || name == "lessthan" || name == "<") return compare_values(value, "<", other());
  if (name == "le" || name == "<=") return compare_values(value, "<=", other());
  if (name == "gt" || name == "greaterthan" || name == ">") return compare_values(value, ">", other());
  if (name == "ge" || name == ">=") return compare_values(value, ">=", other());
  if (name == "in") return contains(other(), value);
  if (name == "sameas") return value.same_object(other());
  if (name == "lower" || name == "upper") {
    const Value method = *StringMethods::find(Value(value.text()), "is" + name);
    return method.object().call(runtime, {}).truthy();
  }
  if (name == "escaped") return false;
  fail("No test named '" + name + "'.");
}

}  // namespace rlalgo::text::detail
