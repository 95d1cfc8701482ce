// Jinja2's filters that make one value of another: text, numbers, single containers. Filters that walk lists with other
// filters, tests or keys are in jinja_list_filters.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/jinja_format.hpp>
#include <rlalgo/text/detail/jinja_json.hpp>
#include <rlalgo/text/detail/jinja_list_filters.hpp>
#include <rlalgo/text/detail/jinja_methods.hpp>
#include <rlalgo/text/detail/jinja_operators.hpp>
#include <rlalgo/text/detail/jinja_value.hpp>
#include <rlalgo/text/detail/python_text.hpp>

namespace rlalgo::text::detail {

class Filters {
 public:
  [[gnu::cold]] static Value apply(Runtime& runtime, const std::string& name, const Value& input,
                                   const Arguments& arguments) {
    if (input.is_string()) charge_bytes(input.string().size());
    charge_texts(arguments);
    static const FilterTable of_values = value_filters(), of_lists = list_filters();
    for (const FilterTable* table : {&of_values, &of_lists}) {
      for (const auto& [known, body] : *table) {
        if (known == name) return body(runtime, input, arguments);
      }
    }
    fail("No filter named '" + name + "'.");
  }

 private:
  [[gnu::cold]] static FilterTable value_filters() {
    return {
        {"default", otherwise},
        {"d", otherwise},
        {"trim",
         [](Runtime&, const Value& v, const Arguments& a) -> Value {
           const Value chars = a.get(0, "chars");
           const std::string text = v.text();
           return chars.is_none() ? python_strip(text, {}) : python_strip(text, {}, string_argument(&chars, "trim"));
         }},
        {"upper",
         [](Runtime&, const Value& v, const Arguments&) -> Value { return change_case(v.text(), Case::upper); }},
        {"lower",
         [](Runtime&, const Value& v, const Arguments&) -> Value { return change_case(v.text(), Case::lower); }},
        {"capitalize", [](Runtime&, const Value& v, const Arguments&) -> Value { return capitalize(v.text()); }},
        {"title", words_title},
        {"string",
         [](Runtime&, const Value& v, const Arguments&) -> Value { return v.is_string() ? v : Value(v.text()); }},
        {"safe", [](Runtime&, const Value& v, const Arguments&) -> Value { return Value::markup(v.text()); }},
        {"escape", escape},
        {"e", escape},
        {"forceescape",
         [](Runtime&, const Value& v, const Arguments&) -> Value { return Value::markup(escape_html(v.text())); }},
        {"tojson", [](Runtime&, const Value& v, const Arguments& a) -> Value { return to_json_text(v, a); }},
        {"length", [](Runtime&, const Value& v, const Arguments&) -> Value { return length_of(v); }},
        {"count", [](Runtime&, const Value& v, const Arguments&) -> Value { return length_of(v); }},
        {"replace",
         [](Runtime&, const Value& v, const Arguments& a) -> Value {
           return replace_all(v.text(), a.get(0, "old").text(), a.get(1, "new").text(),
                              a.get(2, "count").is_none() ? -1 : integer_argument(a.get(2, "count"), "count"));
         }},
        {"format",
         [](Runtime&, const Value& v, const Arguments& a) -> Value {
           if (a.named.empty()) return format_percent(v.text(), Value::tuple(a.positional));
           Dict dict;
           for (const auto& [key, value] : a.named) dict.set(key, value);
           return format_percent(v.text(), dict);
         }},
        {"indent", indent},
        {"center",
         [](Runtime&, const Value& v, const Arguments& a) -> Value {
           return pad_text(v.text(), std::min<std::int64_t>(integer_argument(a.get(0, "width", 80), "width"), 100'000),
                           " ", '^');
         }},
        {"truncate", truncate},
        {"wordcount",
         [](Runtime&, const Value& v, const Arguments&) -> Value {
           std::int64_t words = 0;
           bool inside = false;
           const std::string text = v.text();
           for (const std::string_view c : characters(text)) {
             const bool now = is_word(scalar_at(c, 0).value);
             words += now && !inside ? 1 : 0;
             inside = now;
           }
           return words;
         }},
        {"urlencode", url_encode},
        {"int", to_int},
        {"float",
         [](Runtime&, const Value& v, const Arguments& a) -> Value {
           v.require_defined();
           if (v.is_number()) return v.real();
           const std::optional<double> parsed = v.is_string() ? parse_float(v.string()) : std::nullopt;
           return parsed ? Value(*parsed) : a.get(0, "default", 0.0);
         }},
        {"abs",
         [](Runtime&, const Value& v, const Arguments&) -> Value {
           v.require_defined();
           if (!v.is_number()) fail("bad operand type for abs(): '" + v.type_name() + "'");
           if (v.is_float()) return std::fabs(v.real());
           return v.integer() < 0 ? -v.integer() : v.integer();
         }},
        {"round", round},
        {"attr",
         [](Runtime& runtime, const Value& v, const Arguments& a) -> Value {
           const std::string name = a.get(0, "name").text();
           if (!v.is_dict()) return runtime.attribute(v, name);
           // Attributes only, not keys.
           const std::optional<Value> method = container_method(v, name);
           return method ? *method : Value::undefined("'dict object' has no attribute '" + name + "'");
         }},
    };
  }

  [[gnu::cold]] static Value otherwise(Runtime&, const Value& v, const Arguments& a) {
    const bool replace = v.is_undefined() || (a.get(1, "boolean").truthy() && !v.truthy());
    return replace ? a.get(0, "default_value", "") : v;
  }

  // Words begin after white space or one of - ( { [ <.
  [[gnu::cold]] static Value words_title(Runtime&, const Value& v, const Arguments&) {
    std::string out;
    bool beginning = true;
    const std::string text = v.text();
    for (const std::string_view c : characters(text)) {
      const char32_t value = scalar_at(c, 0).value;
      const bool separates =
          is_python_space(value) ||
          (value < 0x80 && std::string_view("-({[<").find(static_cast<char>(value)) != std::string_view::npos);
      out += beginning ? change_case(c, Case::upper) : change_case(c, Case::lower);
      beginning = separates;
    }
    return out;
  }

  [[gnu::cold]] static Value escape(Runtime&, const Value& v, const Arguments&) {
    return v.is_markup() ? v : Value::markup(escape_html(v.text()));
  }

  // indent(width=4, first=false, blank=false)
  [[gnu::cold]] static Value indent(Runtime&, const Value& v, const Arguments& a) {
    const Value width = a.get(0, "width", 4);
    const std::string prefix =
        width.is_string()
            ? width.string()
            : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(integer_argument(width, "width"), 0, 1000)),
                          ' ');
    const bool first = a.get(1, "first").truthy(), blank = a.get(2, "blank").truthy();
    const std::vector<std::string> lines = split_lines(v.text() + "\n", false);
    charge(lines.size() * (prefix.size() / 16 + 1));
    std::string out;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) out += '\n';
      if (i == 0 ? first : blank || !lines[i].empty()) out += prefix;
      out += lines[i];
    }
    return out;
  }

  // truncate(length=255, killwords=False, end='...', leeway=5)
  [[gnu::cold]] static Value truncate(Runtime&, const Value& v, const Arguments& a) {
    const std::string text = v.text(), end = a.get(2, "end", "...").text();
    const std::int64_t length = integer_argument(a.get(0, "length", 255), "length");
    const std::int64_t leeway = a.get(3, "leeway").is_none() ? 5 : integer_argument(a.get(3, "leeway"), "leeway");
    const std::int64_t keep = length - static_cast<std::int64_t>(python_length(end));
    if (keep < 0) fail("expected length >= " + std::to_string(python_length(end)) + ", got " + std::to_string(length));
    const std::vector<std::string_view> all = characters(text);
    if (static_cast<std::int64_t>(all.size()) <= length + leeway) return text;
    std::string cut;
    for (std::int64_t i = 0; i < keep; ++i) cut += all[static_cast<std::size_t>(i)];
    if (!a.get(1, "killwords").truthy()) cut = cut.substr(0, std::min(cut.rfind(' '), cut.size()));
    return cut + end;
  }

  [[gnu::cold]] static Value url_encode(Runtime&, const Value& v, const Arguments&) {
    std::string out;
    if (v.is_string()) charge(v.string().size());
    for (const char c : v.text()) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 ||
          std::string_view("_.-~/").find(c) != std::string_view::npos) {
        out += c;
      } else {
        std::array<char, 4> hex{};
        std::snprintf(hex.data(), hex.size(), "%%%02X", static_cast<unsigned>(static_cast<std::uint8_t>(c)));
        out += hex.data();
      }
    }
    return out;
  }

  [[gnu::cold]] static std::optional<double> parse_float(const std::string& text) {
    charge(text.size() / 4);
    const std::string trimmed(python_strip(text, {}));
    if (trimmed.empty() || trimmed.find_first_of("xXpP") != std::string::npos) return std::nullopt;
    char* end = nullptr;
    const double value = std::strtod(trimmed.c_str(), &end);
    return end == trimmed.c_str() + trimmed.size() ? std::optional<double>(value) : std::nullopt;
  }

  // int(default=0, base=10)
  [[gnu::cold]] static Value to_int(Runtime&, const Value& v, const Arguments& a) {
    const Value otherwise = a.get(0, "default", 0);
    const std::int64_t base = integer_argument(a.get(1, "base", 10), "base");
    v.require_defined();
    if (v.is_integral()) return v.integer();
    std::optional<double> real;
    if (v.is_float()) real = v.real();
    if (v.is_string()) {
      std::string text(python_strip(v.string(), {}));
      if (text.starts_with('+')) text.erase(0, 1);
      if (base == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.erase(0, 2);
      std::int64_t value = 0;
      const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value,
                                                 static_cast<int>(std::clamp<std::int64_t>(base, 2, 36)));
      if (!text.empty() && status == std::errc() && end == text.data() + text.size()) return value;
      real = parse_float(v.string());
    }
    if (!real || !(std::fabs(*real) < 9.2e18)) return otherwise;
    return static_cast<std::int64_t>(*real);
  }

  // round(precision=0, method='common'|'ceil'|'floor')
  [[gnu::cold]] static Value round(Runtime&, const Value& v, const Arguments& a) {
    v.require_defined();
    if (!v.is_number()) fail("type " + v.type_name() + " doesn't define __round__ method");
    const std::int64_t precision =
        std::clamp<std::int64_t>(integer_argument(a.get(0, "precision", 0), "precision"), -300, 300);
    const std::string method = a.get(1, "method", "common").text();
    if (method == "common") {
      if (v.is_integral() && precision >= 0) return v.integer();
      const double scale = std::pow(10.0, static_cast<double>(-precision));
      if (precision < 0) {
        const double rounded = std::nearbyint(v.real() / scale) * scale;
        return v.is_float() ? Value(rounded) : Value(static_cast<std::int64_t>(rounded));
      }
      std::array<char, 700> digits{};  // printf rounds the exact value half to even, as Python does
      std::snprintf(digits.data(), digits.size(), "%.*f", static_cast<int>(precision), v.real());
      return std::strtod(digits.data(), nullptr);
    }
    if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
    const double scale = std::pow(10.0, static_cast<double>(precision));
    return (method == "ceil" ? std::ceil(v.real() * scale) : std::floor(v.real() * scale)) / scale;
  }
};

}  // namespace rlalgo::text::detail
