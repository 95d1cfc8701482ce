#include <support/catch.hpp>

#include <rlalgo/core/reward_table.hpp>

using namespace rlalgo::core;

TEST_CASE("the weighted sum skips entries that do not apply") {
  RewardTable table({"a", "b"}, {1.0, 0.5}, 3);
  table(0, 0) = 1.0;
  table(0, 1) = 0.5;
  table(1, 1) = 0.7;
  CHECK(table.weighted_sum(0) == 1.25);
  CHECK(table.weighted_sum(1) == Approx(0.35));
  CHECK(std::isnan(table.weighted_sum(2)));
}

TEST_CASE("weights default to one and entries start as not applicable") {
  RewardTable table({"a"}, {}, 1);
  CHECK(table.weights() == std::vector<double>{1.0});
  CHECK(std::isnan(table(0, 0)));
}
