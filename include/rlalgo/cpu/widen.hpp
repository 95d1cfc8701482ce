// A weight as float32: of a float32 itself, of a bfloat16 given by its bits.
#pragma once

#include <bit>
#include <cstdint>

namespace rlalgo::cpu {

[[nodiscard]] inline float widen(float x) { return x; }
[[nodiscard]] inline float widen(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16U);
}

}  // namespace rlalgo::cpu
