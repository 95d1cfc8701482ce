// A weight in float32: what is in float32 already, or is told by the bits of a bfloat16.
#pragma once

#include <bit>
#include <cstdint>

namespace rlalgo::inference::detail {

[[nodiscard]] inline float widen(float x) { return x; }
[[nodiscard]] inline float widen(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16U);
}

}  // namespace rlalgo::inference::detail
