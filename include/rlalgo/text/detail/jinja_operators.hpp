// Python's operators on template values: arithmetic, concatenation, repetition, slicing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/text/detail/jinja_format.hpp>
#include <rlalgo/text/detail/jinja_value.hpp>

namespace rlalgo::text::detail {

[[nodiscard, gnu::cold]] inline std::string escape_html(std::string_view text) {
  constexpr std::string_view special = "&<>\"'";
  constexpr std::string_view escaped[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
  charge_bytes(text.size());
  std::string out;
  for (const char c : text) {
    const std::size_t at = special.find(c);
    at == std::string_view::npos ? void(out += c) : void(out += escaped[at]);
  }
  return out;
}

class Operators {
 public:
  [[nodiscard, gnu::cold]] static Value apply(const std::string& op, const Value& a, const Value& b) {
    if (op == "~") return join(a.text(), b.text());
    a.require_defined();
    b.require_defined();
    if (op == "+") return add(a, b);
    if (op == "*") return multiply(a, b);
    if (op == "%" && a.is_string()) return format_percent(a.string(), b);
    if (!a.is_number() || !b.is_number()) unsupported(op, a, b);
    return a.is_float() || b.is_float() || op == "/" ? real(op, a.real(), b.real())
                                                     : whole(op, a.integer(), b.integer());
  }

  [[gnu::cold]] static Value negate(const Value& v) {
    v.require_defined();
    if (!v.is_number()) fail("bad operand type for unary -: '" + v.type_name() + "'");
    if (v.is_float()) return -v.real();
    return checked(__builtin_sub_overflow(std::int64_t{0}, v.integer(), &result()), "-");
  }

  // value[start:stop:step]; none where a bound is absent.
  [[gnu::cold]] static Value slice(const Value& value, const Value& start, const Value& stop, const Value& step) {
    value.require_defined();
    if (!value.is_string() && !value.is_sequence()) fail("'" + value.type_name() + "' object cannot be sliced");
    const std::int64_t stride = step.is_none() ? 1 : bound(step);
    if (stride == 0) fail("slice step cannot be zero");
    std::vector<std::string_view> letters;
    if (value.is_string()) letters = characters(value.string());
    const auto length = static_cast<std::int64_t>(value.is_string() ? letters.size() : value.list().size());
    const std::int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? length : length - 1;
    const auto place = [&](const Value& v, std::int64_t otherwise) {
      if (v.is_none()) return otherwise;
      const std::int64_t at = bound(v);
      return std::clamp(at < 0 ? at + length : at, low, high);
    };
    const std::int64_t begin = place(start, stride > 0 ? low : high), end = place(stop, stride > 0 ? high : low);
    std::string text;
    List items;
    for (std::int64_t i = begin; stride > 0 ? i < end : i > end; i += stride) {
      value.is_string() ? void(text += letters[static_cast<std::size_t>(i)])
                        : items.push_back(value.list()[static_cast<std::size_t>(i)]);
      if (stride > length || stride < -length) break;  // one step leaves the sequence, and might overflow
    }
    if (value.is_string()) return text;
    return value.is_tuple() ? Value::tuple(std::move(items)) : Value(std::move(items));
  }

 private:
  [[noreturn]] static void unsupported(const std::string& op, const Value& a, const Value& b) {
    fail("unsupported operand type(s) for " + op + ": '" + a.type_name() + "' and '" + b.type_name() + "'");
  }
  static std::int64_t bound(const Value& v) {
    v.require_defined();
    if (!v.is_integral()) fail("slice indices must be integers or None, not '" + v.type_name() + "'");
    return v.integer();
  }
  static std::int64_t& result() {
    thread_local std::int64_t value = 0;
    return value;
  }
  [[gnu::cold]] static Value checked(bool overflow, const char* op) {
    if (overflow) fail(std::string("an integer above 64 bits, from ") + op);
    return result();
  }

  [[nodiscard, gnu::cold]] static Value join(const std::string& a, const std::string& b) {
    charge((a.size() + b.size()) / 8);
    return a + b;
  }

  [[nodiscard, gnu::cold]] static Value add(const Value& a, const Value& b) {
    if (a.is_string() && b.is_string()) {
      if (a.is_markup() == b.is_markup()) {
        return a.is_markup() ? Value::markup(a.string() + b.string()) : join(a.string(), b.string());
      }
      return Value::markup(a.is_markup() ? a.string() + escape_html(b.string()) : escape_html(a.string()) + b.string());
    }
    if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
      charge(a.list().size() + b.list().size());
      List items = a.list();
      items.insert(items.end(), b.list().begin(), b.list().end());
      return a.is_tuple() ? Value::tuple(std::move(items)) : Value(std::move(items));
    }
    if (a.is_string()) fail("can only concatenate str (not \"" + b.type_name() + "\") to str");
    if (a.is_sequence())
      fail("can only concatenate " + a.type_name() + " (not \"" + b.type_name() + "\") to " + a.type_name());
    if (!a.is_number() || !b.is_number()) unsupported("+", a, b);
    return a.is_float() || b.is_float() ? Value(a.real() + b.real()) : whole("+", a.integer(), b.integer());
  }

  [[nodiscard, gnu::cold]] static Value multiply(const Value& a, const Value& b) {
    if (b.is_string() || b.is_sequence())
      return a.is_integral() ? repeat(b, a.integer()) : (unsupported("*", a, b), Value());
    if (a.is_string() || a.is_sequence())
      return b.is_integral() ? repeat(a, b.integer()) : (unsupported("*", a, b), Value());
    if (!a.is_number() || !b.is_number()) unsupported("*", a, b);
    return a.is_float() || b.is_float() ? Value(a.real() * b.real()) : whole("*", a.integer(), b.integer());
  }

  [[nodiscard, gnu::cold]] static Value repeat(const Value& v, std::int64_t times) {
    const std::size_t count = static_cast<std::size_t>(std::clamp<std::int64_t>(times, 0, 1 << 30));
    const std::size_t size = v.is_string() ? v.string().size() / 8 + 1 : v.list().size() + 1;
    charge(size * count);
    if (v.is_string()) {
      std::string text;
      for (std::size_t i = 0; i < count; ++i) text += v.string();
      return text;
    }
    List items;
    for (std::size_t i = 0; i < count; ++i) items.insert(items.end(), v.list().begin(), v.list().end());
    return v.is_tuple() ? Value::tuple(std::move(items)) : Value(std::move(items));
  }

  [[gnu::cold]] static Value real(const std::string& op, double a, double b) {
    if (op == "-") return a - b;
    if (op == "**") return std::pow(a, b);
    if (b == 0.0) fail(op == "/" ? "division by zero" : "float floor division or modulo by zero");
    if (op == "/") return a / b;
    double rest = std::fmod(a, b);
    if (rest != 0.0 && (rest < 0.0) != (b < 0.0)) rest += b;
    return op == "%" ? rest : std::floor((a - rest) / b + 0.5);
  }

  [[gnu::cold]] static Value whole(const std::string& op, std::int64_t a, std::int64_t b) {
    if (op == "+") return checked(__builtin_add_overflow(a, b, &result()), "+");
    if (op == "-") return checked(__builtin_sub_overflow(a, b, &result()), "-");
    if (op == "*") return checked(__builtin_mul_overflow(a, b, &result()), "*");
    if (op == "**") return power(a, b);
    if (b == 0) fail("integer division or modulo by zero");
    if (b == -1) return op == "%" ? Value(0) : checked(__builtin_sub_overflow(std::int64_t{0}, a, &result()), "//");
    const std::int64_t rest = a % b;
    const bool shift = rest != 0 && (rest < 0) != (b < 0);  // Python rounds towards minus infinity
    return op == "%" ? Value(shift ? rest + b : rest) : Value(a / b - (shift ? 1 : 0));
  }

  [[gnu::cold]] static Value power(std::int64_t base, std::int64_t exponent) {
    if (exponent < 0)
      return base == 0 ? (fail("0.0 cannot be raised to a negative power"), Value())
                       : Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
    std::int64_t value = 1;
    if (base == 0 || base == 1 || base == -1) return exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base;
    for (std::int64_t i = 0; i < exponent; ++i) {
      if (__builtin_mul_overflow(value, base, &value)) fail("an integer above 64 bits, from **");
    }
    return value;
  }
};

}  // namespace rlalgo::text::detail
