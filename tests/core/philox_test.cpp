#include <support/catch.hpp>

#include <rlalgo/core/philox.hpp>

using namespace rlalgo::core;

TEST_CASE("philox is a pure function of its key and counter") {
  const PhiloxKey key{42, Stream::sampling};
  CHECK(philox(key, 1, 2) == philox(key, 1, 2));
  CHECK(philox(key, 1, 2) != philox(key, 2, 1));
  CHECK(philox({42, Stream::data}, 1, 2) != philox(key, 1, 2));
}

TEST_CASE("uniform draws have mean 1/2 and variance 1/12") {
  double sum = 0, square = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double u = uniform({7, Stream::test}, 3, static_cast<std::uint64_t>(i));
    REQUIRE(u >= 0.0);
    REQUIRE(u < 1.0);
    sum += u;
    square += u * u;
  }
  CHECK(sum / n == Approx(0.5).margin(0.005));
  CHECK(square / n - (sum / n) * (sum / n) == Approx(1.0 / 12).margin(0.002));
}

// Known answers of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds).
TEST_CASE("philox gives the published answers") {
  const Stream none{0};
  CHECK(philox({0, none}, 0, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const std::uint64_t ones = ~0ULL;
  CHECK(philox({ones, none}, ones, ones) == PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}
