// Python's two string formattings: "%s: %d" % (…) and "{}: {name}".format(…).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/text/detail/jinja_value.hpp>
#include <rlalgo/text/detail/python_text.hpp>

namespace rlalgo::text::detail {

// align: '<' left, '>' right, '^' centre (an odd space goes where str.center puts it).
[[gnu::cold]] inline std::string pad_text(const std::string& text, std::int64_t width, const std::string& fill,
                                          char align) {
  const std::int64_t missing = width - static_cast<std::int64_t>(python_length(text));
  if (missing <= 0) return text;
  charge_bytes(static_cast<std::size_t>(missing) * fill.size());
  const std::int64_t left = align == '<' ? 0 : align == '>' ? missing : missing / 2 + (missing & width & 1);
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (std::int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

// One printf conversion of a number; flags, width and precision were checked.
[[gnu::cold]] inline std::string format_number(const std::string& flags, int precision, char conversion,
                                               const Value& value) {
  value.require_defined();
  if (!value.is_number())
    fail(std::string("%") + conversion + " format: a real number is required, not " + value.type_name());
  charge(32);
  std::string spec = "%" + flags;
  if (precision >= 0) spec += "." + std::to_string(precision);
  std::string out(512, '\0');
  int length = 0;
  if (std::string_view("eEfFgG").find(conversion) != std::string_view::npos) {
    spec += conversion;
    length = std::snprintf(out.data(), out.size(), spec.c_str(), value.real());
  } else {
    if (value.is_float() && conversion != 'd')
      fail(std::string("%") + conversion + " format: an integer is required, not float");
    spec += std::string("ll") + conversion;
    const std::int64_t number = value.is_float() ? static_cast<std::int64_t>(value.real()) : value.integer();
    length = std::snprintf(out.data(), out.size(), spec.c_str(), static_cast<long long>(number));
  }
  out.resize(static_cast<std::size_t>(std::clamp<int>(length, 0, static_cast<int>(out.size()) - 1)));
  return out;
}

// format % values; one value or a tuple of them, or a dict for %(name)s.
[[gnu::cold]] inline std::string format_percent(std::string_view format, const Value& values) {
  charge_bytes(format.size());
  std::string out;
  std::size_t used = 0;
  const auto next = [&]() -> Value {
    if (!values.is_tuple()) {
      if (used++ > 0) fail("not enough arguments for format string");
      return values;
    }
    if (used >= values.list().size()) fail("not enough arguments for format string");
    return values.list()[used++];
  };
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    const auto peek = [&] { return i < format.size() ? format[i] : '\0'; };
    ++i;
    Value argument;
    bool named = false;
    if (peek() == '(') {
      const std::size_t close = format.find(')', i);
      if (close == std::string_view::npos || !values.is_dict()) fail("format requires a mapping");
      const Value* found = values.dict().find(format.substr(i + 1, close - i - 1));
      if (found == nullptr) fail("format: no key '" + std::string(format.substr(i + 1, close - i - 1)) + "'");
      argument = *found;
      named = true;
      i = close + 1;
    }
    std::string flags;
    while (peek() != '\0' && std::string_view("-+ #0").find(peek()) != std::string_view::npos) flags += format[i++];
    const auto number = [&] {
      int value = 0;
      while (peek() >= '0' && peek() <= '9' && value < 1000) value = value * 10 + (format[i++] - '0');
      if (value > 400) fail("a format width or precision above 400");
      return value;
    };
    const int width = number();
    int precision = -1;
    if (peek() == '.') ++i, precision = number();
    char conversion = peek();
    if (conversion == '\0') fail("incomplete format");
    if (conversion == '%') {
      out += '%';
      continue;
    }
    if (!named) argument = next();
    charge_bytes(64 + (argument.is_string() ? argument.string().size() : 0));
    std::string text;
    if (conversion == 's' || conversion == 'r' || conversion == 'a') {
      text = conversion == 's' ? argument.text() : argument.repr();
      if (precision >= 0) {
        const auto all = characters(text);
        std::string cut;
        for (std::size_t c = 0; c < all.size() && c < static_cast<std::size_t>(precision); ++c) cut += all[c];
        text = cut;
      }
      const bool left = flags.find('-') != std::string::npos;
      out += pad_text(text, width, " ", left ? '<' : '>');
      continue;
    }
    if (conversion == 'i' || conversion == 'u') conversion = 'd';
    if (std::string_view("doxXeEfFgG").find(conversion) == std::string_view::npos) {
      fail(std::string("unsupported format character '") + conversion + "'");
    }
    out += format_number(flags + (width > 0 ? std::to_string(width) : ""), precision, conversion, argument);
  }
  const std::size_t given = values.is_tuple() ? values.list().size() : values.is_dict() ? 0 : 1;
  if (used < given) fail("not all arguments converted during string formatting");
  return out;
}

// [[fill]align][sign][0][width][,][.precision][type] of one value.
[[gnu::cold]] inline std::string format_spec(const Value& value, std::string_view spec) {
  std::string fill = " ";
  char align = '\0';
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^'; };
  if (!spec.empty()) {
    const std::size_t first = scalar_at(spec, 0).length;
    if (spec.size() > first && is_align(spec[first])) {
      fill = spec.substr(0, first);
      align = spec[first];
      spec.remove_prefix(first + 1);
    } else if (is_align(spec[0])) {
      align = spec[0];
      spec.remove_prefix(1);
    }
  }
  std::string flags;
  if (!spec.empty() && (spec[0] == '+' || spec[0] == '-' || spec[0] == ' ')) {
    if (spec[0] != '-') flags += spec[0];
    spec.remove_prefix(1);
  }
  const bool zero = !spec.empty() && spec[0] == '0';
  const auto number = [&] {
    int result = 0;
    while (!spec.empty() && spec[0] >= '0' && spec[0] <= '9' && result < 1000) {
      result = result * 10 + (spec[0] - '0');
      spec.remove_prefix(1);
    }
    if (result > 400) fail("a format width or precision above 400");
    return result;
  };
  const int width = number();
  const bool grouped = !spec.empty() && spec[0] == ',';
  if (grouped) spec.remove_prefix(1);
  int precision = -1;
  if (!spec.empty() && spec[0] == '.') spec.remove_prefix(1), precision = number();
  const char type = spec.empty() ? '\0' : spec[0];
  if (spec.size() > 1) fail("invalid format specifier");
  if (grouped || (type != '\0' && std::string_view("sdfFeEgGxXo").find(type) == std::string_view::npos)) {
    fail("a format specifier that is not supported in chat templates");
  }
  charge_bytes(64 + (value.is_string() ? value.string().size() : 0));
  std::string text;
  if (value.is_string() || type == 's' || (type == '\0' && precision < 0)) {
    text = value.text();
    if (zero && value.is_number()) fill = "0";
  } else {
    text = format_number(flags, precision, type == '\0' ? 'g' : type, value);
    if (zero) fill = "0";
  }
  return pad_text(text, width, fill, align != '\0' ? align : value.is_number() ? '>' : '<');
}

// format.format(positional…, name=…): {} {0} {name}, each with an optional !r or !s and a :spec.
[[gnu::cold]] inline std::string format_braces(std::string_view format, const Arguments& arguments) {
  std::string out;
  std::size_t automatic = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if ((c == '{' || c == '}') && i + 1 < format.size() && format[i + 1] == c) {
      out += c;
      ++i;
      continue;
    }
    if (c == '}') fail("Single '}' encountered in format string");
    if (c != '{') {
      out += c;
      continue;
    }
    const std::size_t close = format.find('}', i);
    if (close == std::string_view::npos) fail("Single '{' encountered in format string");
    std::string_view field = format.substr(i + 1, close - i - 1);
    i = close;
    std::string_view spec;
    if (const std::size_t colon = field.find(':'); colon != std::string_view::npos) {
      spec = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    const bool digits = !field.empty() && field.find_first_not_of("0123456789") == std::string_view::npos;
    const Value* value = nullptr;
    if (field.empty()) {
      value = arguments.find(automatic++, "");
    } else if (digits) {
      value = field.size() < 6 ? arguments.find(std::stoul(std::string(field)), "") : nullptr;
    } else {
      value = arguments.find(arguments.positional.size(), field);
    }
    if (value == nullptr) fail("format: no argument for '{" + std::string(field) + "}'");
    out += conversion == 'r' ? format_spec(Value(value->repr()), spec) : format_spec(*value, spec);
  }
  return out;
}

}  // namespace rlalgo::text::detail
