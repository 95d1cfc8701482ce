// A number as float32, of a float32 itself or of a bfloat16 given by its bits; and the nearest bfloat16 of a float32.
#pragma once

#include <bit>
#include <cstdint>

namespace rlalgo::cpu {

[[nodiscard]] inline float widen(float x) { return x; }
[[nodiscard]] inline float widen(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16U);
}

// To the even one of two as near; NaN stays NaN.
[[nodiscard]] inline std::uint16_t narrow(float x) {
  if (x != x) return 0x7FC0;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}

}  // namespace rlalgo::cpu
