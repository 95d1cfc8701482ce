// Python's str, as chat templates see it, on UTF-8: lengths and positions count code points, methods follow Python 3.
#pragma once

#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/text/detail/jinja_meter.hpp>
#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

// str.isspace() of one character: White_Space and the four information separators.
[[nodiscard]] inline bool is_python_space(char32_t c) noexcept { return is_space(c) || (c >= 0x1C && c <= 0x1F); }

[[nodiscard]] inline std::size_t python_length(std::string_view text) noexcept {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<std::uint8_t>(c) & 0xC0U) != 0x80U; }));
}

// Each code point as a view of its bytes; the text must outlive the result.
std::vector<std::string_view> characters(std::string&& text) = delete;
[[nodiscard, gnu::cold]] inline std::vector<std::string_view> characters(std::string_view text) {
  charge(text.size() + 1);
  std::vector<std::string_view> out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = scalar_at(text, i).length;
    out.push_back(text.substr(i, length));
    i += length;
  }
  return out;
}

// The code point with this index, which exists.
[[nodiscard]] inline std::string_view character_at(std::string_view text, std::size_t index) {
  charge(text.size() / 64);
  if (is_ascii(text)) return text.substr(index, 1);
  std::size_t at = 0;
  while (index-- > 0) at += scalar_at(text, at).length;
  return text.substr(at, scalar_at(text, at).length);
}

// Byte offset of the first or last occurrence, or npos. find_text takes linear time for any input.
[[nodiscard]] inline std::size_t find_text(std::string_view text, std::string_view part, std::size_t from = 0) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}
[[nodiscard]] inline std::size_t find_last(std::string_view text, std::string_view part) {
  constexpr std::size_t short_part = 16;  // bytes: a search backwards looks at each place for so many at most
  if (part.size() <= short_part) {
    const std::size_t at = text.rfind(part);
    charge((text.size() - (at == std::string_view::npos ? 0 : at)) / 16);
    return at;
  }
  charge(text.size() / 8);
  const std::string backwards(text.rbegin(), text.rend()), wanted(part.rbegin(), part.rend());
  const std::size_t at = find_text(backwards, wanted);
  return at == std::string_view::npos ? at : text.size() - at - part.size();
}

// The indices 0 … count - 1 in a stable order.
[[nodiscard, gnu::noinline]] inline std::vector<std::size_t> stable_order(
    std::size_t count, const std::function<bool(std::size_t, std::size_t)>& before) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), before);
  return order;
}

struct StripSides {
  bool left = true, right = true;
};

// Without chars: white space; with chars: any character of that set.
[[nodiscard]] inline std::string_view python_strip(std::string_view text, StripSides sides,
                                                   std::optional<std::string_view> chars = std::nullopt) {
  const auto drop = [&](std::string_view c) {
    charge(chars ? chars->size() / 16 + 1 : 0);
    return chars ? chars->find(c) != std::string_view::npos : is_python_space(scalar_at(c, 0).value);
  };
  while (sides.left && !text.empty()) {
    const std::size_t length = scalar_at(text, 0).length;
    if (!drop(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (sides.right && !text.empty()) {
    const std::size_t last = previous_scalar(text, text.size());
    if (!drop(text.substr(last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

// str.split(None, limit) and rsplit; limit < 0: no limit. What the limit leaves over keeps the spaces at its far end.
[[nodiscard, gnu::cold]] inline std::vector<std::string> split_spaces(std::string_view text, std::int64_t limit,
                                                                      bool from_right) {
  std::vector<std::string> out;
  for (text = python_strip(text, {!from_right, from_right}); !text.empty();
       text = python_strip(text, {!from_right, from_right}), --limit) {
    if (limit == 0) {
      out.emplace_back(text);
      break;
    }
    std::size_t word = 0;  // bytes of the word at the near end
    while (word < text.size()) {
      const std::size_t at = from_right ? previous_scalar(text, text.size() - word) : word;
      const Scalar c = scalar_at(text, at);
      if (is_python_space(c.value)) break;
      word += c.length;
    }
    charge(4);
    out.emplace_back(from_right ? text.substr(text.size() - word) : text.substr(0, word));
    from_right ? text.remove_suffix(word) : text.remove_prefix(word);
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

// str.split(separator, limit); the separator is not empty.
[[nodiscard, gnu::cold]] inline std::vector<std::string> split_by(std::string_view text, std::string_view separator,
                                                                  std::int64_t limit, bool from_right) {
  std::vector<std::string> out;
  for (; limit != 0; --limit) {
    charge(4);
    const std::size_t at = from_right ? find_last(text, separator) : find_text(text, separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      out.emplace_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      out.emplace_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
  }
  out.emplace_back(text);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

[[nodiscard, gnu::cold]] inline std::vector<std::string> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size();) {
    const Scalar c = scalar_at(text, i);
    const std::size_t end_of_line = i;
    i += c.length;
    const bool line_break = (c.value >= 0x0A && c.value <= 0x0D) || (c.value >= 0x1C && c.value <= 0x1E) ||
                            c.value == 0x85 || c.value == 0x2028 || c.value == 0x2029;
    if (!line_break) continue;
    charge(4);
    if (c.value == U'\r' && i < text.size() && text[i] == '\n') ++i;
    out.emplace_back(text.substr(begin, (keep_ends ? i : end_of_line) - begin));
    begin = i;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

[[nodiscard, gnu::cold]] inline std::string replace_all(std::string_view text, std::string_view from,
                                                        std::string_view to, std::int64_t limit = -1) {
  std::string out;
  if (from.empty()) {  // between all characters, and at both ends
    for (const std::string_view c : characters(text)) {
      charge_bytes(to.size());
      if (limit != 0) out += to, --limit;
      out += c;
    }
    if (limit != 0) out += to;
    return out;
  }
  for (; limit != 0; --limit) {
    const std::size_t at = find_text(text, from);
    if (at == std::string_view::npos) break;
    charge_bytes(at + to.size());
    out += text.substr(0, at);
    out += to;
    text.remove_prefix(at + from.size());
  }
  out += text;
  return out;
}

enum class Case { upper, lower, fold };

[[nodiscard, gnu::cold]] inline std::string change_case(std::string_view text, Case to) {
  charge(text.size() / 6 + 4);
  icu::UnicodeString wide = icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
  if (to == Case::upper) wide.toUpper(icu::Locale::getRoot());
  if (to == Case::lower) wide.toLower(icu::Locale::getRoot());
  if (to == Case::fold) wide.foldCase();
  std::string out;
  wide.toUTF8String(out);
  return out;
}

// One character in title case; 'ß' becomes 'Ss'.
[[nodiscard, gnu::cold]] inline std::string title_character(std::string_view c) {
  const char32_t value = scalar_at(c, 0).value;
  const auto title = static_cast<char32_t>(u_totitle(static_cast<UChar32>(value)));
  std::string out;
  if (title != value || value < 0x80) {
    append_utf8(out, title);
    return out;
  }
  const std::string upper = change_case(c, Case::upper);
  const std::size_t first = upper.empty() ? 0 : scalar_at(upper, 0).length;
  return upper.substr(0, first) + change_case(std::string_view(upper).substr(first), Case::lower);
}

[[nodiscard, gnu::cold]] inline std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t first = scalar_at(text, 0).length;
  return title_character(text.substr(0, first)) + change_case(text.substr(first), Case::lower);
}

[[nodiscard, gnu::cold]] inline bool is_cased(char32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_CASED) != 0;
}

// str.title(): a cased character is upper-cased after an uncased one, else lower-cased.
[[nodiscard, gnu::cold]] inline std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  for (const std::string_view c : characters(text)) {
    out += inside ? change_case(c, Case::lower) : title_character(c);
    inside = is_cased(scalar_at(c, 0).value);
  }
  return out;
}

// repr() of a float, which is also its JSON form: the shortest digits that read back as the same number.
[[nodiscard, gnu::cold]] inline std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto scientific =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  std::string text(buffer.data(), scientific.ptr);
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent >= -4 && exponent < 16) {
    const auto fixed = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
    text.assign(buffer.data(), fixed.ptr);
    return text.find('.') == std::string::npos ? text + ".0" : text;
  }
  return text;
}

// repr() of a string: quotes as Python chooses them, unprintable characters escaped.
[[nodiscard, gnu::cold]] inline std::string string_repr(std::string_view text) {
  constexpr std::string_view hex = "0123456789abcdef";
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (std::size_t i = 0; i < text.size();) {
    const Scalar c = scalar_at(text, i);
    const std::string_view bytes = text.substr(i, c.length);
    i += c.length;
    const std::uint32_t category = U_MASK(u_charType(static_cast<UChar32>(c.value)));
    const bool printable = c.value == U' ' || (category & (U_GC_C_MASK | U_GC_Z_MASK)) == 0;
    if (c.value == static_cast<char32_t>(quote) || c.value == U'\\') {
      out += '\\';
      out += bytes;
    } else if (c.value == U'\n' || c.value == U'\r' || c.value == U'\t') {
      out += c.value == U'\n' ? "\\n" : c.value == U'\r' ? "\\r" : "\\t";
    } else if (printable) {
      out += bytes;
    } else {
      const int digits = c.value <= 0xFF ? 2 : c.value <= 0xFFFF ? 4 : 8;
      out += digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
      for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4)
        out += hex[c.value >> static_cast<unsigned>(shift) & 15U];
    }
  }
  return out + quote;
}

}  // namespace rlalgo::text::detail
