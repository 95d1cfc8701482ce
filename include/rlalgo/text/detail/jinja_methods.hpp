// Attributes of built-in values: the methods of Python's str, dict, list and tuple that templates may call.
//
// As in Jinja's immutable sandbox, methods that would change a list or dict fail.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/jinja_format.hpp>
#include <rlalgo/text/detail/jinja_value.hpp>
#include <rlalgo/text/detail/python_text.hpp>

namespace rlalgo::text::detail {

// Something to call: a global function, a bound method.
class Function : public Object {
 public:
  using Body = std::function<Value(Runtime&, const Arguments&)>;
  // height: of the values that the body holds.
  Function(std::string name, Body body, int height) : Object(height), name_(std::move(name)), body_(std::move(body)) {}
  [[nodiscard]] std::string type_name() const override { return "function"; }
  [[nodiscard]] std::string text() const override { return "<function " + name_ + ">"; }
  [[nodiscard]] bool callable() const override { return true; }
  Value call(Runtime& runtime, Arguments arguments) override {
    charge_texts(arguments);
    return body_(runtime, arguments);
  }

 private:
  std::string name_;
  Body body_;
};

[[gnu::cold]] inline Value function(std::string name, Function::Body body, int height = 0) {
  return Value(std::static_pointer_cast<Object>(std::make_shared<Function>(std::move(name), std::move(body), height)));
}

[[nodiscard, gnu::cold]] inline Value strings(const std::vector<std::string>& parts) {
  List items;
  items.reserve(parts.size());
  for (const std::string& part : parts) items.emplace_back(part);
  return items;
}

inline const std::string& string_argument(const Value* value, const char* method) {
  if (value == nullptr) fail(std::string(method) + "() misses an argument");
  value->require_defined();
  if (!value->is_string()) fail(std::string(method) + "() argument must be str, not " + value->type_name());
  return value->string();
}

inline std::int64_t integer_argument(const Value& value, const char* what) {
  value.require_defined();
  if (!value.is_integral()) fail(std::string(what) + " must be an integer, not '" + value.type_name() + "'");
  return value.integer();
}

// [start, stop) of a sequence of `length` items, as Python's methods take them: a start behind the end stays there.
[[gnu::cold]] inline std::pair<std::int64_t, std::int64_t> window(const Arguments& arguments, std::size_t first,
                                                                  std::int64_t length) {
  const auto bound = [&](std::size_t index, std::int64_t otherwise) {
    const Value value = arguments.get(index, "");
    if (value.is_none()) return otherwise;
    const std::int64_t at = integer_argument(value, "slice indices");
    return std::clamp<std::int64_t>(at < 0 ? at + length : at, 0, length + 1);
  };
  return {bound(first, 0), std::min(bound(first + 1, length), length)};
}

class StringMethods {
 public:
  // The bound method, or nothing.
  [[gnu::cold]] static std::optional<Value> find(const Value& self, const std::string& name) {
    using Method = Value (*)(const std::string&, const Arguments&);
    static const std::vector<std::pair<std::string_view, Method>> methods = {
        {"strip",
         [](const std::string& s, const Arguments& a) {
           return strip(s, a, {true, true});
         }},
        {"lstrip",
         [](const std::string& s, const Arguments& a) {
           return strip(s, a, {true, false});
         }},
        {"rstrip",
         [](const std::string& s, const Arguments& a) {
           return strip(s, a, {false, true});
         }},
        {"split", [](const std::string& s, const Arguments& a) { return split(s, a, false); }},
        {"rsplit", [](const std::string& s, const Arguments& a) { return split(s, a, true); }},
        {"splitlines", [](const std::string& s,
                          const Arguments& a) { return strings(split_lines(s, a.get(0, "keepends").truthy())); }},
        {"startswith", [](const std::string& s, const Arguments& a) { return affix(s, a, true); }},
        {"endswith", [](const std::string& s, const Arguments& a) { return affix(s, a, false); }},
        {"removeprefix",
         [](const std::string& s, const Arguments& a) -> Value {
           const std::string& prefix = string_argument(a.find(0, "prefix"), "removeprefix");
           return s.starts_with(prefix) ? s.substr(prefix.size()) : s;
         }},
        {"removesuffix",
         [](const std::string& s, const Arguments& a) -> Value {
           const std::string& suffix = string_argument(a.find(0, "suffix"), "removesuffix");
           return s.ends_with(suffix) ? s.substr(0, s.size() - suffix.size()) : s;
         }},
        {"replace",
         [](const std::string& s, const Arguments& a) -> Value {
           return replace_all(s, string_argument(a.find(0, "old"), "replace"),
                              string_argument(a.find(1, "new"), "replace"),
                              integer_argument(a.get(2, "count", -1), "count"));
         }},
        {"upper", [](const std::string& s, const Arguments&) -> Value { return change_case(s, Case::upper); }},
        {"lower", [](const std::string& s, const Arguments&) -> Value { return change_case(s, Case::lower); }},
        {"casefold", [](const std::string& s, const Arguments&) -> Value { return change_case(s, Case::fold); }},
        {"title", [](const std::string& s, const Arguments&) -> Value { return title(s); }},
        {"capitalize", [](const std::string& s, const Arguments&) -> Value { return capitalize(s); }},
        {"swapcase", [](const std::string& s, const Arguments&) -> Value { return swap_case(s); }},
        {"find", [](const std::string& s, const Arguments& a) { return position(s, a, "find", false, false); }},
        {"rfind", [](const std::string& s, const Arguments& a) { return position(s, a, "rfind", true, false); }},
        {"index", [](const std::string& s, const Arguments& a) { return position(s, a, "index", false, true); }},
        {"rindex", [](const std::string& s, const Arguments& a) { return position(s, a, "rindex", true, true); }},
        {"count", count},
        {"join", join},
        {"partition", [](const std::string& s, const Arguments& a) { return partition(s, a, false); }},
        {"rpartition", [](const std::string& s, const Arguments& a) { return partition(s, a, true); }},
        {"format", [](const std::string& s, const Arguments& a) -> Value { return format_braces(s, a); }},
        {"zfill", zero_fill},
        {"center", [](const std::string& s, const Arguments& a) { return pad(s, a, '^'); }},
        {"ljust", [](const std::string& s, const Arguments& a) { return pad(s, a, '<'); }},
        {"rjust", [](const std::string& s, const Arguments& a) { return pad(s, a, '>'); }},
        {"isspace", [](const std::string& s, const Arguments&) { return all(s, is_python_space); }},
        {"isalpha", [](const std::string& s,
                       const Arguments&) { return all(s, [](char32_t c) { return (char_class(c) & letter) != 0; }); }},
        {"isdecimal", [](const std::string& s,
                         const Arguments&) { return all(s, [](char32_t c) { return numeric(c) == U_NT_DECIMAL; }); }},
        {"isdigit",
         [](const std::string& s, const Arguments&) {
           return all(s, [](char32_t c) { return numeric(c) == U_NT_DECIMAL || numeric(c) == U_NT_DIGIT; });
         }},
        {"isnumeric", [](const std::string& s,
                         const Arguments&) { return all(s, [](char32_t c) { return numeric(c) != U_NT_NONE; }); }},
        {"isalnum",
         [](const std::string& s, const Arguments&) {
           return all(s, [](char32_t c) { return (char_class(c) & letter) != 0 || numeric(c) != U_NT_NONE; });
         }},
        {"isascii", [](const std::string& s, const Arguments&) -> Value { return is_ascii(s); }},
        {"isupper", [](const std::string& s, const Arguments&) { return cased(s, UCHAR_UPPERCASE); }},
        {"islower", [](const std::string& s, const Arguments&) { return cased(s, UCHAR_LOWERCASE); }},
    };
    for (const auto& [known, method] : methods) {
      if (known != name) continue;
      return function(name, [self, method = method](Runtime&, const Arguments& a) {
        charge_bytes(self.string().size());
        return method(self.string(), a);
      });
    }
    return std::nullopt;
  }

 private:
  [[gnu::cold]] static Value strip(const std::string& s, const Arguments& a, StripSides sides) {
    const Value chars = a.get(0, "chars");
    if (chars.is_none()) return python_strip(s, sides);
    return python_strip(s, sides, string_argument(&chars, "strip"));
  }
  [[gnu::cold]] static Value split(const std::string& s, const Arguments& a, bool from_right) {
    const Value separator = a.get(0, "sep");
    const std::int64_t limit = integer_argument(a.get(1, "maxsplit", -1), "maxsplit");
    if (separator.is_none()) return strings(split_spaces(s, limit, from_right));
    if (string_argument(&separator, "split").empty()) fail("empty separator");
    return strings(split_by(s, separator.string(), limit, from_right));
  }
  [[gnu::cold]] static std::string slice(const std::string& s, std::int64_t begin, std::int64_t end) {
    const std::vector<std::string_view> all = characters(s);
    std::string out;
    for (std::int64_t i = begin; i < end; ++i) out += all[static_cast<std::size_t>(i)];
    return out;
  }
  [[gnu::cold]] static Value affix(const std::string& s, const Arguments& a, bool start) {
    const Value* wanted = a.find(0, "");
    std::string part = s;
    if (a.positional.size() > 1) {
      const auto [begin, end] = window(a, 1, static_cast<std::int64_t>(python_length(s)));
      if (begin > end) return false;
      part = slice(s, begin, end);
    }
    const auto fits = [&](const std::string& affix) { return start ? part.starts_with(affix) : part.ends_with(affix); };
    const char* method = start ? "startswith" : "endswith";
    if (wanted != nullptr && wanted->is_tuple()) {
      return std::any_of(wanted->list().begin(), wanted->list().end(),
                         [&](const Value& v) { return fits(string_argument(&v, method)); });
    }
    return fits(string_argument(wanted, method));
  }
  [[gnu::cold]] static Value position(const std::string& s, const Arguments& a, const char* method, bool last,
                                      bool must) {
    const std::string& part = string_argument(a.find(0, "sub"), method);
    const auto [begin, end] = window(a, 1, static_cast<std::int64_t>(python_length(s)));
    const std::string inside = begin < end ? slice(s, begin, end) : "";
    const std::size_t at = begin > end ? std::string::npos : last ? find_last(inside, part) : find_text(inside, part);
    if (at != std::string::npos)
      return begin + static_cast<std::int64_t>(python_length(std::string_view(inside).substr(0, at)));
    if (must) fail("substring not found");
    return -1;
  }
  [[gnu::cold]] static Value count(const std::string& s, const Arguments& a) {
    const std::string& part = string_argument(a.find(0, "sub"), "count");
    const auto [begin, end] = window(a, 1, static_cast<std::int64_t>(python_length(s)));
    if (begin > end) return 0;
    const std::string inside = slice(s, begin, end);
    if (part.empty()) return static_cast<std::int64_t>(python_length(inside)) + 1;
    std::int64_t found = 0;
    for (std::size_t at = find_text(inside, part); at != std::string::npos;
         at = find_text(inside, part, at + part.size()))
      ++found;
    return found;
  }
  [[gnu::cold]] static Value join(const std::string& s, const Arguments& a) {
    std::string out;
    bool first = true;
    for (const Value& item : iterate(a.get(0, "iterable"))) {
      if (!item.is_string()) fail("sequence item: expected str instance, " + item.type_name() + " found");
      charge_bytes(s.size() + item.string().size());
      if (!std::exchange(first, false)) out += s;
      out += item.string();
    }
    return out;
  }
  [[gnu::cold]] static Value partition(const std::string& s, const Arguments& a, bool last) {
    const std::string& separator = string_argument(a.find(0, "sep"), "partition");
    if (separator.empty()) fail("empty separator");
    const std::size_t at = last ? find_last(s, separator) : find_text(s, separator);
    if (at == std::string::npos) return last ? Value::tuple({"", "", s}) : Value::tuple({s, "", ""});
    return Value::tuple({s.substr(0, at), separator, s.substr(at + separator.size())});
  }
  [[gnu::cold]] static Value zero_fill(const std::string& s, const Arguments& a) {
    const std::int64_t missing = width(a) - static_cast<std::int64_t>(python_length(s));
    if (missing <= 0) return s;
    const std::size_t sign = !s.empty() && (s[0] == '-' || s[0] == '+') ? 1 : 0;
    return s.substr(0, sign) + std::string(static_cast<std::size_t>(missing), '0') + s.substr(sign);
  }
  static std::int64_t width(const Arguments& a) {
    const std::int64_t width = integer_argument(a.get(0, "width"), "width");
    if (width > 1'000'000) fail("a width of more than 1,000,000 characters");
    return width;
  }
  [[gnu::cold]] static Value pad(const std::string& s, const Arguments& a, char align) {
    const Value fill = a.get(1, "fillchar", " ");
    return pad_text(s, width(a), string_argument(&fill, "fillchar"), align);
  }
  [[gnu::cold]] static Value swap_case(const std::string& s) {
    std::string out;
    for (const std::string_view c : characters(s)) {
      const bool upper = u_hasBinaryProperty(static_cast<UChar32>(scalar_at(c, 0).value), UCHAR_UPPERCASE) != 0;
      out += change_case(c, upper ? Case::lower : Case::upper);
    }
    return out;
  }
  static int numeric(char32_t c) { return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_NUMERIC_TYPE); }
  template <class Predicate>
  [[gnu::cold]] static Value all(const std::string& s, Predicate predicate) {
    for (const std::string_view c : characters(s)) {
      if (!predicate(scalar_at(c, 0).value)) return false;
    }
    return !s.empty();
  }
  // All cased characters have the property, and there is one.
  [[gnu::cold]] static Value cased(const std::string& s, UProperty property) {
    bool any = false;
    for (const std::string_view c : characters(s)) {
      const char32_t value = scalar_at(c, 0).value;
      if (!is_cased(value)) continue;
      if (u_hasBinaryProperty(static_cast<UChar32>(value), property) == 0) return false;
      any = true;
    }
    return any;
  }
};

// self.name for a dict, list or tuple: a bound method, or nothing.
[[gnu::cold]] inline std::optional<Value> container_method(const Value& self, const std::string& name) {
  const auto view = [&](bool keys, bool values) {
    return function(
        name,
        [self, name, keys, values](Runtime&, const Arguments&) {
          List items;
          for (const auto& [key, value] : self.dict().entries) {
            items.push_back(keys && values ? Value::tuple({key, value}) : keys ? key : value);
          }
          charge(items.size());
          return Value(
              std::static_pointer_cast<Object>(std::make_shared<View>("dict_" + name, Value(std::move(items)))));
        },
        self.height());
  };
  const auto unsafe = [&](std::initializer_list<std::string_view> names) {
    if (std::find(names.begin(), names.end(), name) == names.end()) return false;
    return true;
  };
  const auto refused = [&] {
    return Value::undefined("access to attribute '" + name + "' of '" + self.type_name() + "' object is unsafe.");
  };
  if (self.is_dict()) {
    if (name == "items") return view(true, true);
    if (name == "keys") return view(true, false);
    if (name == "values") return view(false, true);
    if (name == "get") {
      return function(
          name,
          [self](Runtime&, const Arguments& a) -> Value {
            const Value* key = a.find(0, "key");
            if (key == nullptr) fail("get expected at least 1 argument, got 0");
            const Value* found = self.dict().find(*key);
            return found != nullptr ? *found : a.get(1, "default");
          },
          self.height());
    }
    if (name == "copy")
      return function(
          name, [self](Runtime&, const Arguments&) { return self; }, self.height());
    if (unsafe({"clear", "pop", "popitem", "setdefault", "update"})) return refused();
    return std::nullopt;
  }
  if (name == "index" || name == "count") {
    return function(
        name,
        [self, name](Runtime&, const Arguments& a) -> Value {
          const Value wanted = a.get(0, "value");
          std::int64_t found = 0;
          for (std::size_t i = 0; i < self.list().size(); ++i) {
            charge(1);
            if (!self.list()[i].equals(wanted)) continue;
            if (name == "index") return static_cast<std::int64_t>(i);
            ++found;
          }
          if (name == "index") fail(wanted.repr() + " is not in list");
          return found;
        },
        self.height());
  }
  if (self.is_list()) {
    if (name == "copy")
      return function(
          name, [self](Runtime&, const Arguments&) { return self; }, self.height());
    if (unsafe({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"})) return refused();
  }
  return std::nullopt;
}

}  // namespace rlalgo::text::detail
