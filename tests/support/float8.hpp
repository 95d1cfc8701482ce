// Numbers in e4m3 by their definition, for tests of kernels: cuda/float8.cuh is compared with this. Included after support/kernels.hpp.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include <rlalgo/cuda/float8.cuh>

#include <support/kernels.hpp>

namespace rlalgo::support {

using cuda::Float8;

inline double wide(Float8 x) {
  const unsigned exponent = x.bits >> 3U & 15U, fraction = x.bits & 7U;
  const double sign = x.bits >= 128 ? -1.0 : 1.0;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<double>::quiet_NaN();
  return exponent == 0 ? sign * std::ldexp(fraction, -9)
                       : sign * std::ldexp(1.0 + fraction / 8.0, static_cast<int>(exponent) - 7);
}

// The nearest, of two as near the even code; beyond the largest that.
template <>
inline Float8 as<Float8>(double x) {
  const unsigned sign = std::signbit(x) ? 128 : 0;
  if (std::isnan(x)) return {static_cast<std::uint8_t>(sign | 0x7FU)};
  static const auto numbers = [] {
    std::array<double, 127> out{};
    for (unsigned code = 0; code < 127; ++code) out[code] = wide(Float8{static_cast<std::uint8_t>(code)});
    return out;
  }();
  const double size = std::abs(x);
  unsigned best = 0;
  for (unsigned code = 1; code < 127; ++code) {
    const double here = std::abs(size - numbers[code]), before = std::abs(size - numbers[best]);
    if (here < before || (here == before && code % 2 == 0)) best = code;
  }
  return {static_cast<std::uint8_t>(sign | best)};
}
template <>
inline constexpr double rounding<Float8> = 0x1p-4;

}  // namespace rlalgo::support
