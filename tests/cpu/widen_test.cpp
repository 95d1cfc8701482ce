#include <rlalgo/cpu/widen.hpp>

#include <cmath>
#include <cstdint>

#include <support/catch.hpp>

using rlalgo::cpu::widen;

TEST_CASE("a weight as float32 is itself, or the number whose upper half a bfloat16 is") {
  CHECK(widen(0.1f) == 0.1f);
  CHECK(widen(std::uint16_t{0x3F80}) == 1.0f);
  CHECK(widen(std::uint16_t{0xC040}) == -3.0f);
  CHECK(widen(std::uint16_t{0x0001}) == std::ldexp(1.0f, -133));
  CHECK(std::isinf(widen(std::uint16_t{0x7F80})));
  CHECK(std::isnan(widen(std::uint16_t{0x7FC0})));
}
