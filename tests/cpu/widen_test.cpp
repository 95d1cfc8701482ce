#include <rlalgo/cpu/widen.hpp>

#include <cmath>
#include <cstdint>

#include <support/catch.hpp>

using rlalgo::cpu::narrow, rlalgo::cpu::widen;

TEST_CASE("a weight as float32 is itself, or the number whose upper half a bfloat16 is") {
  CHECK(widen(0.1f) == 0.1f);
  CHECK(widen(std::uint16_t{0x3F80}) == 1.0f);
  CHECK(widen(std::uint16_t{0xC040}) == -3.0f);
  CHECK(widen(std::uint16_t{0x0001}) == std::ldexp(1.0f, -133));
  CHECK(std::isinf(widen(std::uint16_t{0x7F80})));
  CHECK(std::isnan(widen(std::uint16_t{0x7FC0})));
}

TEST_CASE("a float32 becomes the nearest bfloat16, of two as near the even one") {
  CHECK(narrow(1.0f) == 0x3F80);
  CHECK(narrow(1.0f + 1.0f / 256) == 0x3F80);  // between 0x3F80 and 0x3F81
  CHECK(narrow(1.0f + 3.0f / 256) == 0x3F82);  // between 0x3F81 and 0x3F82
  CHECK(narrow(1.0f + 1.0f / 256 + 1e-6f) == 0x3F81);
  CHECK(narrow(-0.0f) == 0x8000);
  CHECK(narrow(3.4e38f) == 0x7F80);
  CHECK(std::isnan(widen(narrow(std::nanf("")))));
}
