#include <cmath>
#include <limits>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/core/moments.hpp>

using rlalgo::core::finite_advantage;
using rlalgo::core::Moments;
using rlalgo::core::moments;

namespace {
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinite = std::numeric_limits<double>::infinity();
}  // namespace

TEST_CASE("mean and sample deviation of 2 4 4 4 5 5 7 9") {
  // Σ = 40, mean 5, Σ(x−5)² = 9+1+1+1+0+0+4+16 = 32, 32/7
  const Moments m = moments(std::vector<double>{2, 4, 4, 4, 5, 5, 7, 9});
  CHECK(m.mean == Approx(5.0).epsilon(1e-15));
  CHECK(m.deviation == Approx(std::sqrt(32.0 / 7.0)).epsilon(1e-15));
  CHECK(m.count == 8);
}

TEST_CASE("NaN is skipped; one value or none has no deviation") {
  const Moments m = moments(std::vector<double>{nan_value, 1, nan_value, 3});
  CHECK(m.mean == 2.0);
  CHECK(m.deviation == Approx(std::sqrt(2.0)));
  CHECK(m.count == 2);
  const Moments one = moments(std::vector<double>{nan_value, 0.1});
  CHECK(one.mean == 0.1);
  CHECK(std::isnan(one.deviation));
  CHECK(one.count == 1);
  const Moments none = moments(std::vector<double>{nan_value});
  CHECK(std::isnan(none.mean));
  CHECK(none.count == 0);
  CHECK(moments({}).count == 0);
}

TEST_CASE("a constant set has its value as mean and deviation exactly 0") {
  for (const double value : {3.3, 0.1, -0.7, 1e-300, 1e300, 0.0})
    for (std::size_t n = 2; n < 40; ++n) {
      const Moments m = moments(std::vector<double>(n, value));
      CHECK(m.mean == value);
      CHECK(m.deviation == 0.0);
    }
}

TEST_CASE("infinite entries give an infinite mean, both signs give NaN") {
  const Moments m = moments(std::vector<double>{1, infinite});
  CHECK(m.mean == infinite);
  CHECK(std::isnan(m.deviation));
  CHECK(std::isnan(moments(std::vector<double>{-infinite, infinite}).mean));
}

TEST_CASE("an advantage is finite") {
  constexpr double largest = std::numeric_limits<float>::max();
  CHECK(finite_advantage(nan_value) == 0.0);
  CHECK(finite_advantage(infinite) == largest);
  CHECK(finite_advantage(-infinite) == -largest);
  CHECK(finite_advantage(-1e300) == -largest);
  CHECK(finite_advantage(-0.25) == -0.25);
}

TEST_CASE("sums and squares that double cannot hold are scaled first") {
  const Moments m = moments(std::vector<double>{1e308, 0, 0, -1e308});  // std₁ = 1e308·√(2/3)
  CHECK(m.mean == Approx(0.0).margin(1e293));
  CHECK(m.deviation == Approx(1e308 * std::sqrt(2.0 / 3.0)));
  const Moments sum = moments(std::vector<double>{1.7e308, 1.6e308, 1.5e308, nan_value});
  CHECK(sum.mean == Approx(1.6e308));
  CHECK(sum.deviation == Approx(1e307));
  CHECK(sum.count == 3);
  const Moments squares = moments(std::vector<double>{1e200, -1e200});
  CHECK(squares.deviation == Approx(std::sqrt(2.0) * 1e200));
  // On both sides of the limit the same numbers come out, but for the scale.
  const Moments below = moments(std::vector<double>{0x1p+499, 0x1.8p+498, -0x1p+490});
  const Moments above = moments(std::vector<double>{0x1p+509, 0x1.8p+508, -0x1p+500});
  CHECK(above.mean == std::ldexp(below.mean, 10));
  CHECK(above.deviation == std::ldexp(below.deviation, 10));
}
