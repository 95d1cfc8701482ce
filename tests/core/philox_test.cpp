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
