// The byte alphabet of byte-level BPE: every byte has one printable character, so that any text is a string of them.
//
// Bytes 0x21–0x7E, 0xA1–0xAC, 0xAE–0xFF stand for themselves; the other 68, ascending, are U+0100, U+0101, …
// Source: Radford et al. 2019 (GPT-2), bytes_to_unicode.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

struct ByteAlphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, 0x144> byte{};  // of a character, or -1
};

[[nodiscard]] constexpr ByteAlphabet make_byte_alphabet() noexcept {
  ByteAlphabet alphabet;
  alphabet.byte.fill(-1);
  char32_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const char32_t c = printable ? static_cast<char32_t>(b) : next++;
    alphabet.character[b] = c;
    alphabet.byte[c] = static_cast<std::int16_t>(b);
  }
  return alphabet;
}

inline constexpr ByteAlphabet byte_alphabet = make_byte_alphabet();

// The bytes that a string of alphabet characters stands for; nothing if another character occurs in it.
[[nodiscard]] inline std::optional<std::string> bytes_of_characters(std::string_view characters) {
  std::string bytes;
  bytes.reserve(characters.size());
  for (std::size_t i = 0; i < characters.size();) {
    const Scalar scalar = scalar_at(characters, i);
    if (scalar.value >= byte_alphabet.byte.size() || byte_alphabet.byte[scalar.value] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_alphabet.byte[scalar.value]);
    i += scalar.length;
  }
  return bytes;
}

[[nodiscard]] inline std::string characters_of_bytes(std::string_view bytes) {
  std::string characters;
  for (const char b : bytes) append_utf8(characters, byte_alphabet.character[static_cast<std::uint8_t>(b)]);
  return characters;
}

}  // namespace rlalgo::text::detail
