// JSON ↔ template values, and the tojson filter as transformers configures it: json.dumps with ensure_ascii off, keys
// in insertion order, no HTML escaping.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/text/detail/jinja_value.hpp>
#include <rlalgo/text/detail/python_text.hpp>

namespace rlalgo::text::detail {

[[gnu::cold]] inline Value from_json(const nlohmann::ordered_json& json, int depth = 0) {
  if (depth > Value::height_limit) fail("a variable is nested too deeply");
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_integer:
      return json.get<std::int64_t>();
    case Type::number_unsigned: {
      const auto value = json.get<std::uint64_t>();
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return static_cast<double>(value);
      return static_cast<std::int64_t>(value);
    }
    case Type::number_float:
      return json.get<double>();
    case Type::string: {
      const auto& text = json.get_ref<const std::string&>();
      return is_valid_utf8(text) ? text : to_valid_utf8(text);
    }
    case Type::array: {
      List items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(from_json(item, depth + 1));
      return items;
    }
    case Type::object: {
      Dict dict;
      dict.entries.reserve(json.size());
      for (const auto& [key, value] : json.items()) {
        dict.entries.emplace_back(is_valid_utf8(key) ? key : to_valid_utf8(key), from_json(value, depth + 1));
      }
      return dict;
    }
    default:
      return {};
  }
}

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool indented = false;
  std::string indent;  // one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  [[nodiscard, gnu::cold]] std::string write(const Value& value) {
    append(value, 0);
    return std::move(out_);
  }

 private:
  [[gnu::cold]] void append(const Value& value, int depth) {
    charge(1);
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.boolean() ? "true" : "false";
    } else if (value.is_int()) {
      out_ += std::to_string(value.integer());
    } else if (value.is_float()) {
      out_ += number(value.real());
    } else if (value.is_string()) {
      append_string(value.string());
    } else if (value.is_sequence()) {
      const List& items = value.list();
      open('[');
      for (std::size_t i = 0; i < items.size(); ++i) {
        separate(i, depth + 1);
        append(items[i], depth + 1);
      }
      close(']', items.empty(), depth);
    } else if (value.is_dict()) {
      append_dict(value.dict(), depth);
    } else {
      fail("Object of type " + value.type_name() + " is not JSON serializable");
    }
  }

  [[gnu::cold]] static std::string number(double value) {
    const std::string text = float_repr(value);
    return text == "nan" ? "NaN" : text == "inf" ? "Infinity" : text == "-inf" ? "-Infinity" : text;
  }

  [[gnu::cold]] void append_dict(const Dict& dict, int depth) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : dict.entries) keys.push_back(key_text(key));
    const auto entry = [&](std::size_t index, std::size_t from) {
      separate(index, depth + 1);
      append_string(keys[from]);
      charge_bytes(style_.key_separator.size());
      out_ += style_.key_separator;
      append(dict.entries[from].second, depth + 1);
    };
    open('{');
    std::size_t index = 0;
    if (style_.sort_keys) {
      for (const std::size_t from :
           stable_order(keys.size(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; })) {
        entry(index++, from);
      }
    } else {
      while (index < keys.size()) entry(index, index), ++index;
    }
    close('}', keys.empty(), depth);
  }

  [[gnu::cold]] static std::string key_text(const Value& key) {
    if (key.is_string()) return key.string();
    if (key.is_none()) return "null";
    if (key.is_bool()) return key.boolean() ? "true" : "false";
    if (key.is_int()) return std::to_string(key.integer());
    if (key.is_float()) return number(key.real());
    fail("keys must be str, int, float, bool or None, not " + key.type_name());
  }

  void open(char bracket) { out_ += bracket; }
  [[gnu::cold]] void separate(std::size_t index, int depth) {
    charge_bytes(style_.item_separator.size());
    if (index > 0) out_ += style_.item_separator;
    line(depth);
  }
  [[gnu::cold]] void close(char bracket, bool empty, int depth) {
    if (!empty) line(depth);
    out_ += bracket;
  }
  void line(int depth) {
    if (!style_.indented) return;
    out_ += '\n';
    charge_bytes(style_.indent.size() * static_cast<std::size_t>(depth));
    for (int i = 0; i < depth; ++i) out_ += style_.indent;
  }

  [[gnu::cold]] void append_escape(std::uint32_t unit) {
    constexpr std::string_view hex = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += hex[unit >> static_cast<unsigned>(shift) & 15U];
  }

  [[gnu::cold]] void append_string(std::string_view text) {
    charge_bytes(text.size());
    out_ += '"';
    for (std::size_t i = 0; i < text.size();) {
      const Scalar c = scalar_at(text, i);
      switch (c.value) {
        case U'"':
          out_ += "\\\"";
          break;
        case U'\\':
          out_ += "\\\\";
          break;
        case U'\n':
          out_ += "\\n";
          break;
        case U'\r':
          out_ += "\\r";
          break;
        case U'\t':
          out_ += "\\t";
          break;
        case U'\f':
          out_ += "\\f";
          break;
        case U'\b':
          out_ += "\\b";
          break;
        default:
          if (c.value < 0x20 || (style_.ensure_ascii && c.value >= 0x7F && c.value <= 0xFFFF)) {
            append_escape(c.value);
          } else if (style_.ensure_ascii && c.value > 0xFFFF) {
            append_escape(0xD800U + ((c.value - 0x10000U) >> 10U));
            append_escape(0xDC00U + ((c.value - 0x10000U) & 0x3FFU));
          } else {
            out_ += text.substr(i, c.length);
          }
      }
      i += c.length;
    }
    out_ += '"';
  }

  const JsonStyle& style_;
  std::string out_;
};

// tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)
[[gnu::cold]] inline Value to_json_text(const Value& value, const Arguments& arguments) {
  JsonStyle style;
  style.ensure_ascii = arguments.get(0, "ensure_ascii").truthy();
  const Value indent = arguments.get(1, "indent");
  if (indent.is_string() || indent.is_integral()) {
    style.indented = true;
    style.item_separator = ",";
    style.indent = indent.is_string()
                       ? indent.string()
                       : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(indent.integer(), 0, 64)), ' ');
  }
  const Value separators = arguments.get(2, "separators");
  if (separators.is_sequence() && separators.list().size() == 2) {
    style.item_separator = separators.list()[0].text();
    style.key_separator = separators.list()[1].text();
  }
  style.sort_keys = arguments.get(3, "sort_keys").truthy();
  return JsonWriter(style).write(value);
}

}  // namespace rlalgo::text::detail
