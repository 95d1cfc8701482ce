// Text of strangers (keys, cells, answers, exceptions) made fit for a terminal and for one screen.
//
// printable    control characters, marks that turn the direction of writing, and bytes that are no UTF-8 become escapes
//              (\x1b, \u0085, \u202e, \xff), so that a quoted input can neither colour nor move nor hide anything
// shortened    the beginning and the end of a long text, with the number of bytes left out between
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rlalgo::core {

namespace detail {

// The length of the UTF-8 character that `text` begins with, and its code; 0 where there is none.
struct Character {
  std::size_t bytes = 0;
  std::uint32_t code = 0;
};
[[nodiscard]] inline Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || bytes > text.size()) return {};
  std::uint32_t code = lead & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[bytes] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {bytes, code};
}

[[nodiscard]] inline bool is_control(std::uint32_t code) { return code < 0x20 || (code >= 0x7F && code <= 0x9F); }
// Marks, embeddings, overrides and isolates of bidirectional text.
[[nodiscard]] inline bool turns_direction(std::uint32_t code) {
  return code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

inline void append_escape(std::string& out, char kind, std::uint32_t value, int digits) {
  out += '\\';
  out += kind;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[(value >> shift) & 15U];
}

}  // namespace detail

// `keep`: the control characters that stay.
[[nodiscard]] inline std::string printable(std::string_view text, std::string_view keep = "\n\t") {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [bytes, code] = detail::first_character(text);
    if (bytes == 0) {
      detail::append_escape(out, 'x', static_cast<unsigned char>(text[0]), 2);
    } else if (bytes == 1 && detail::is_control(code) && keep.find(text[0]) == std::string_view::npos) {
      detail::append_escape(out, 'x', code, 2);
    } else if (bytes > 1 && (detail::is_control(code) || detail::turns_direction(code))) {
      detail::append_escape(out, 'u', code, 4);
    } else {
      out.append(text.substr(0, bytes));
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

// At most about `most` bytes, three quarters of them from the beginning; characters stay whole.
[[nodiscard]] inline std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  const auto inside = [&](std::size_t at) {
    return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
  };
  std::size_t head = most - most / 4, tail = text.size() - most / 4;
  for (int i = 0; i < 3 && head > 0 && inside(head); ++i) --head;
  for (int i = 0; i < 3 && inside(tail); ++i) ++tail;
  return std::string(text.substr(0, head)) + " … (" + std::to_string(tail - head) + " bytes left out) … " +
         std::string(text.substr(tail));
}

}  // namespace rlalgo::core
