// UTF-8 and the character classes that tokenizers' regular expressions use: \p{L}, \p{N}, \p{M}, \s.
//
// Classes come from ICU; code points that Unicode assigned after ICU's version are added from unicode_additions.hpp, so
// that a text splits as it does in the tokenizers library, some of whose tables are newer and some older than ICU's.
// Invariant: every function here except to_valid_utf8 and complete_prefix expects valid UTF-8.
#pragma once

#include <unicode/uchar.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include <rlalgo/text/detail/unicode_additions.hpp>

namespace rlalgo::text::detail {

struct Scalar {
  char32_t value;
  std::size_t length;  // bytes
};

// The scalar that starts at text[at].
[[nodiscard]] inline Scalar scalar_at(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {static_cast<char32_t>((lead & 0x1FU) << 6U | (byte(at + 1) & 0x3FU)), 2};
  if (lead < 0xF0) {
    return {static_cast<char32_t>((lead & 0x0FU) << 12U | (byte(at + 1) & 0x3FU) << 6U | (byte(at + 2) & 0x3FU)), 3};
  }
  return {static_cast<char32_t>((lead & 0x07U) << 18U | (byte(at + 1) & 0x3FU) << 12U | (byte(at + 2) & 0x3FU) << 6U |
                                (byte(at + 3) & 0x3FU)),
          4};
}

// Index of the scalar that ends just before text[at]; at > 0.
[[nodiscard]] inline std::size_t previous_scalar(std::string_view text, std::size_t at) noexcept {
  --at;
  while (at > 0 && (static_cast<std::uint8_t>(text[at]) & 0xC0U) == 0x80U) --at;
  return at;
}

inline void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0U | c >> 6U);
    out += static_cast<char>(0x80U | (c & 0x3FU));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0U | c >> 12U);
    out += static_cast<char>(0x80U | (c >> 6U & 0x3FU));
    out += static_cast<char>(0x80U | (c & 0x3FU));
  } else {
    out += static_cast<char>(0xF0U | c >> 18U);
    out += static_cast<char>(0x80U | (c >> 12U & 0x3FU));
    out += static_cast<char>(0x80U | (c >> 6U & 0x3FU));
    out += static_cast<char>(0x80U | (c & 0x3FU));
  }
}

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8 { complete, truncated, invalid };  // truncated: the bytes so far may still become a character

struct Utf8Step {
  Utf8 kind;
  std::size_t length;  // complete: bytes of the character; else: bytes of the maximal ill-formed prefix (>= 1)
};

// Looks at the character that starts at text[at], which may be malformed (Unicode 15, table 3-7).
[[nodiscard]] inline Utf8Step utf8_step(std::string_view text, std::size_t at) noexcept {
  const auto lead = static_cast<std::uint8_t>(text[at]);
  if (lead < 0x80) return {Utf8::complete, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8::invalid, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const std::uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {Utf8::truncated, i};
    const auto next = static_cast<std::uint8_t>(text[at + i]);
    const bool good = i == 1 ? next >= low && next <= high : (next & 0xC0U) == 0x80U;
    if (!good) return {Utf8::invalid, i};
  }
  return {Utf8::complete, length};
}

[[nodiscard]] inline bool is_ascii(std::string_view text) noexcept {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080ULL) != 0) return false;
  }
  for (; i < text.size(); ++i) {
    if (static_cast<std::uint8_t>(text[i]) >= 0x80) return false;
  }
  return true;
}

[[nodiscard]] inline bool is_valid_utf8(std::string_view text) noexcept {
  if (is_ascii(text)) return true;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    if (step.kind != Utf8::complete) return false;
    i += step.length;
  }
  return true;
}

// Every maximal ill-formed piece becomes one U+FFFD (as Rust's from_utf8_lossy and Python's errors="replace").
[[nodiscard]] inline std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 8);
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    out += step.kind == Utf8::complete ? text.substr(i, step.length) : replacement_character;
    i += step.length;
  }
  return out;
}

// Length of the longest prefix that does not end inside a character which later bytes could still complete.
[[nodiscard]] inline std::size_t complete_prefix(std::string_view text) noexcept {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<std::uint8_t>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;
    const std::size_t at = text.size() - back;
    return utf8_step(text, at).kind == Utf8::truncated ? at : text.size();
  }
  return text.size();
}

// General category (UCharCategory) of a scalar, as the tokenizers library's regular expressions know it.
[[nodiscard]] inline int category_of(char32_t c) noexcept {
  const int known = u_charType(static_cast<UChar32>(c));
  if (known != U_UNASSIGNED) return known;
  const auto* range = std::upper_bound(std::begin(added_characters), std::end(added_characters), c,
                                       [](char32_t value, const AddedCharacters& r) { return value < r.first; });
  if (range == std::begin(added_characters) || c > (--range)->last) return U_UNASSIGNED;
  return range->category;
}

// Bits of one character class byte.
inline constexpr std::uint8_t letter = 1, number = 2, mark = 4, space = 8, line_end = 16;

[[nodiscard]] inline std::uint8_t classify(char32_t c) noexcept {
  const std::uint32_t category = U_MASK(category_of(c));
  std::uint8_t bits = 0;
  if ((category & U_GC_L_MASK) != 0) bits |= letter;
  if ((category & U_GC_N_MASK) != 0) bits |= number;
  if ((category & U_GC_M_MASK) != 0) bits |= mark;
  if (u_isUWhiteSpace(static_cast<UChar32>(c)) != 0) bits |= space;
  if (c == U'\n' || c == U'\r') bits |= line_end;
  return bits;
}

// Class bits of a scalar; the Basic Multilingual Plane is tabulated on first use.
[[nodiscard]] inline std::uint8_t char_class(char32_t c) noexcept {
  static const std::unique_ptr<std::array<std::uint8_t, 0x10000>> table = [] {
    auto bits = std::make_unique<std::array<std::uint8_t, 0x10000>>();
    for (char32_t i = 0; i < 0x10000; ++i) (*bits)[i] = classify(i);
    return bits;
  }();
  return c < 0x10000 ? (*table)[c] : classify(c);
}

[[nodiscard]] inline bool is_space(char32_t c) noexcept { return (char_class(c) & space) != 0; }

// The lower case of one character; U+0130's is two and is not given here.
[[nodiscard]] inline char32_t lower_case(char32_t c) noexcept {
  for (const AddedLowerCase& range : added_lower_case) {
    if (c >= range.first && c <= range.last) {
      return static_cast<char32_t>(static_cast<std::int32_t>(c) + range.distance);
    }
  }
  return static_cast<char32_t>(u_tolower(static_cast<UChar32>(c)));
}

// What Digits splits off: \p{N} of a newer Unicode than the regular expressions'.
[[nodiscard]] inline bool is_numeric(char32_t c) noexcept {
  const auto added = [c](const AddedCharacters& range) { return c >= range.first && c <= range.last; };
  return (char_class(c) & number) != 0 || std::any_of(std::begin(added_numbers), std::end(added_numbers), added);
}

// Whether a character was assigned in this version of Unicode or before. Some parts of the tokenizers library know no
// newer ones.
[[nodiscard]] inline bool is_as_old_as(char32_t c, std::uint8_t major) noexcept {
  UVersionInfo age{};
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] > 0 && age[0] <= major;
}

// What Punctuation splits by: ASCII symbols and \p{P} of Unicode 8.
[[nodiscard]] inline bool is_punctuation(char32_t c) noexcept {
  if (c < 0x80) {
    return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
  }
  if (c == 0x166D || c == 0x111C9) return true;  // later moved to other categories
  return (U_MASK(u_charType(static_cast<UChar32>(c))) & U_GC_P_MASK) != 0 && is_as_old_as(c, 8);
}

// What StripAccents drops: \p{M} of Unicode 9.
[[nodiscard]] inline bool is_accent(char32_t c) noexcept {
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // later moved to other categories
  return (char_class(c) & mark) != 0 && c != 0x111C9 && is_as_old_as(c, 9);
}

// \w of the Rust regex crate: Alphabetic, M, Nd, Pc, Join_Control.
[[nodiscard]] inline bool is_word(char32_t c) noexcept {
  const auto code = static_cast<UChar32>(c);
  return u_hasBinaryProperty(code, UCHAR_ALPHABETIC) != 0 || u_hasBinaryProperty(code, UCHAR_JOIN_CONTROL) != 0 ||
         (U_MASK(category_of(c)) & (U_GC_L_MASK | U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0;
}

}  // namespace rlalgo::text::detail
