// Base64 (RFC 4648 §4, with padding): bytes in JSON.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rlalgo::core {

inline constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// The value of each digit; 64 for all other characters.
inline constexpr std::array<std::uint8_t, 256> base64_values = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(64);
  for (std::uint8_t i = 0; i < 64; ++i) values[static_cast<unsigned char>(base64_digits[i])] = i;
  return values;
}();

[[nodiscard]] inline std::string base64(std::span<const unsigned char> bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t have = bytes.size() - i < 3 ? bytes.size() - i : 3;
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) word = word << 8U | (k < have ? bytes[i + k] : 0U);
    for (std::size_t k = 0; k < 4; ++k) out += k <= have ? base64_digits[word >> (18U - 6U * k) & 63U] : '=';
  }
  return out;
}

// Nothing when a character is no digit.
[[nodiscard]] inline std::optional<std::vector<unsigned char>> from_base64(std::string_view text) {
  std::vector<unsigned char> out;
  out.reserve(text.size() / 4 * 3);
  std::uint32_t word = 0;
  unsigned bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    const std::uint32_t digit = base64_values[static_cast<unsigned char>(c)];
    if (digit == 64) return std::nullopt;
    word = word << 6U | digit;
    bits += 6;
    if (bits >= 8) out.push_back(static_cast<unsigned char>(word >> (bits -= 8) & 255U));
  }
  return out;
}

}  // namespace rlalgo::core
