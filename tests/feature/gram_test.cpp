#include <rlalgo/feature/gram.hpp>

#include <limits>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("a Gram matrix holds the products of samples and ground truth") {
  const feature::Gram g =
      feature::gram(std::vector<std::vector<double>>{{1, 0}, {0, 1}, {.6, .8}}, std::vector{.8, .6});
  CHECK(g.samples == 3);
  CHECK(g.among == std::vector<double>{1, 0, .6, 0, 1, .8, .6, .8, .6 * .6 + .8 * .8});
  CHECK(g.with_truth == std::vector<double>{.8, .6, .6 * .8 + .8 * .6});
  CHECK(g.truth == .8 * .8 + .6 * .6);
}

TEST_CASE("equal features have equal products to the bit") {
  std::vector<double> x, y;
  for (int i = 0; i < 1001; ++i) {
    x.push_back(1.0 / (i + 3));
    y.push_back(i % 7 - 2.5);
  }
  const feature::Gram g = feature::gram(std::vector{x, y, x}, y);
  CHECK(g.among[0] == g.among[2]);
  CHECK(g.among[0] == g.among[8]);
  CHECK(g.among[1] == g.among[5]);
  CHECK(g.with_truth[0] == g.with_truth[2]);
  CHECK(g.with_truth[1] == g.truth);
}

TEST_CASE("a group without samples has no products") {
  const feature::Gram g = feature::gram({}, std::vector{3.0, 4.0});
  CHECK(g.among.empty());
  CHECK(g.truth == 25.0);
}

TEST_CASE("features that cannot be compared are named") {
  const std::vector<double> y = {1, 2};
  CHECK_THROWS_WITH(feature::gram(std::vector<std::vector<double>>{{1, 2}, {1, 2, 3}}, y),
                    Catch::Contains("[rlalgo.feature.1]") && Catch::Contains("sample 1"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH(feature::gram(std::vector<std::vector<double>>{{1, nan}}, y),
                    Catch::Contains("[rlalgo.feature.2]") && Catch::Contains("sample 0"));
  CHECK_THROWS_WITH(feature::gram(std::vector<std::vector<double>>{{1, 2}},
                                  std::vector{std::numeric_limits<double>::infinity(), 0.0}),
                    Catch::Contains("ground truth"));
}
