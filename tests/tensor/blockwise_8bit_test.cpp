#include <support/adamw_8bit_golden.hpp>
#include <support/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include <rlalgo/tensor/blockwise_8bit.hpp>

namespace {
using rlalgo::tensor::DynamicCode;
namespace bitsandbytes = rlalgo::support::bitsandbytes;

// The definition: the nearest value, halfway between two the smaller.
std::uint8_t by_search(const DynamicCode& code, float x) {
  std::size_t i = 0;
  while (i < 255 && x > (code.values()[i] + code.values()[i + 1]) / 2) ++i;
  return static_cast<std::uint8_t>(i);
}
}  // namespace

TEST_CASE("the values of a dynamic code, by hand") {
  // 2⁶ parts of [0.1, 1], 0.9/64 each; the least: one part of 1e-6·[0.1, 1]
  const auto with = DynamicCode::with_sign().values();
  CHECK(with[255] == 1.0F);
  CHECK(with[254] == Approx(1.0 - 0.9 / 128).epsilon(1e-6));
  CHECK(with[127] == 0.0F);
  CHECK(with[128] == Approx(0.55e-6).epsilon(1e-6));
  CHECK(with[126] == -with[128]);
  CHECK(with[0] == -with[254]);
  // 2⁷ parts; two parts of 1e-6·[0.1, 1]: 0.325e-6 and 0.775e-6
  const auto without = DynamicCode::without_sign().values();
  CHECK(without[0] == 0.0F);
  CHECK(without[1] == Approx(0.325e-6).epsilon(1e-6));
  CHECK(without[2] == Approx(0.775e-6).epsilon(1e-6));
  CHECK(without[254] == Approx(1.0 - 0.9 / 256).epsilon(1e-6));
  for (const DynamicCode* code : {&DynamicCode::with_sign(), &DynamicCode::without_sign()})
    CHECK(std::is_sorted(code->values().begin(), code->values().end(), std::less_equal<>()));  // and no two are equal
}

TEST_CASE("every number gets the nearest value's code") {
  for (const DynamicCode* code : {&DynamicCode::with_sign(), &DynamicCode::without_sign()}) {
    const bool sign = code->values()[0] < 0;
    std::size_t wrong = 0, seen = 0;
    const auto check = [&](float x) {
      if (std::fabs(x) > 1.0F || (x < 0 && !sign)) return;
      ++seen;
      if (code->nearest(x) != by_search(*code, x)) ++wrong;
    };
    // around every middle, where rounding decides
    for (std::size_t i = 0; i + 1 < 256; ++i) {
      const float middle = (code->values()[i] + code->values()[i + 1]) / 2;
      float low = middle, high = middle;
      for (int k = 0; k < 8; ++k) {
        check(low);
        check(high);
        low = std::nextafter(low, -2.0F);
        high = std::nextafter(high, 2.0F);
      }
      check(code->values()[i]);
    }
    // and all over, at 1021 places of every power of two down to the smallest number
    for (std::uint32_t bits = 0; bits <= 0x3f800000U; bits += (1U << 23U) / 1021U) {
      check(std::bit_cast<float>(bits));
      check(-std::bit_cast<float>(bits));
    }
    check(1.0F);
    check(-1.0F);
    CHECK(seen > 100000);
    CHECK(wrong == 0);
  }
}

TEST_CASE("one block by hand") {
  // s = 4; 2/4 = 0.5 lies in part 28 of 64 of [0.1, 1]: its middle is 0.1 + 28.5·0.9/64 = 0.50078125
  const std::vector<float> numbers = {4, -2, 0, 1e-6F};
  std::vector<std::uint8_t> codes(4);
  std::vector<float> back(4);
  const DynamicCode& code = DynamicCode::with_sign();
  CHECK(code.quantize(numbers, codes) == 4.0F);
  code.dequantize(codes, 4.0F, back);
  CHECK(back[0] == 4.0F);
  CHECK(back[1] == Approx(-4 * 0.50078125).epsilon(1e-6));
  CHECK(back[2] == 0.0F);
  CHECK(back[3] == 0.0F);  // 2.5e-7 of s: nearer to 0 than to 5.5e-7
  CHECK(codes[3] == 127);
}

TEST_CASE("blocks of nothing, of almost nothing and of what is not finite") {
  const DynamicCode& code = DynamicCode::without_sign();
  std::vector<std::uint8_t> codes(3, 9);
  std::vector<float> back(3);
  CHECK(code.quantize(std::vector<float>{0, -0.0F, 0}, codes) == 0.0F);
  CHECK(codes == std::vector<std::uint8_t>(3, 0));
  CHECK(DynamicCode::with_sign().quantize(std::vector<float>{0, -0.0F, 0}, codes) == 0.0F);
  CHECK(codes == std::vector<std::uint8_t>(3, 127));
  // 1/s is no float32 here
  const std::vector<float> least = {1e-42F, 2e-42F, 0};
  const float s = code.quantize(least, codes);
  CHECK(s == 2e-42F);
  code.dequantize(codes, s, back);
  CHECK(back[0] == Approx(1e-42F).epsilon(0.01));
  CHECK(back[1] == 2e-42F);
  CHECK(back[2] == 0.0F);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const DynamicCode* any : {&DynamicCode::with_sign(), &code})
    for (const float x : {inf, -inf, nan, -nan, 3e38F, -3e38F}) {
      (void)any->nearest(x);  // under sanitizers: reads within its tables
      CHECK_NOTHROW(any->quantize(std::vector<float>{x, 1, -1}, codes));
    }
}

// Reference: bitsandbytes 0.50, functional.create_dynamic_map and quantize_blockwise, in Python.
TEST_CASE("values, codes, scales and numbers are those of bitsandbytes") {
  const bitsandbytes::Json file = bitsandbytes::golden();
  for (const bool sign : {true, false}) {
    const DynamicCode& code = sign ? DynamicCode::with_sign() : DynamicCode::without_sign();
    const auto values = bitsandbytes::unpacked<float>(file.at(sign ? "signed" : "unsigned"));
    REQUIRE(values.size() == 256);
    CHECK(std::equal(values.begin(), values.end(), code.values().begin()));

    std::vector<float> given = bitsandbytes::numbers(256 * 20 + 77, 7);
    std::fill(given.begin() + 256, given.begin() + 512, 0.0F);
    if (!sign)
      for (float& x : given) x *= x;
    const bitsandbytes::Json& expected = file.at(sign ? "first" : "second");
    std::vector<std::uint8_t> codes(given.size());
    std::vector<float> scales, back(given.size()), some;
    for (std::size_t begin = 0; begin < given.size(); begin += DynamicCode::block) {
      const std::size_t n = std::min(DynamicCode::block, given.size() - begin);
      scales.push_back(code.quantize(std::span(given).subspan(begin, n), std::span(codes).subspan(begin, n)));
      code.dequantize(std::span(codes).subspan(begin, n), scales.back(), std::span(back).subspan(begin, n));
    }
    for (std::size_t i = 0; i < back.size(); i += 9) some.push_back(back[i]);
    CHECK(codes == bitsandbytes::unpacked<std::uint8_t>(expected.at("codes")));
    CHECK(scales == bitsandbytes::unpacked<float>(expected.at("scales")));
    CHECK(some == bitsandbytes::unpacked<float>(expected.at("back")));
  }
}
