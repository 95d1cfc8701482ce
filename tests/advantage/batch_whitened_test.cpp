#include <cmath>
#include <limits>
#include <vector>

#include <support/advantage_cases.hpp>
#include <support/catch.hpp>

#include <rlalgo/advantage/batch_whitened.hpp>

using rlalgo::advantage::BatchWhitened;
using rlalgo::core::Groups;

// By hand: rewards 1 3 | 2 6, group means 2 and 4, B = −1 1 −2 2 (std₁ = √(10/3)), batch mean 3 (std₁ = √(14/3)).
TEST_CASE("with the group baseline: centred by group, scaled by the batch") {
  const std::vector<double> rewards = {1, 3, 2, 6};
  const auto out = BatchWhitened()(rewards, Groups::uniform(4, 2));
  const double scale = std::sqrt(10.0 / 3.0) + 1e-4;
  rlalgo::support::check_close(out.advantage, {-1 / scale, 1 / scale, -2 / scale, 2 / scale});
  rlalgo::support::check_close(out.spread, {std::sqrt(2.0), std::sqrt(2.0), std::sqrt(8.0), std::sqrt(8.0)});
}

TEST_CASE("without it: centred and scaled by the batch") {
  const std::vector<double> rewards = {1, 3, 2, 6};
  const auto out = BatchWhitened({.group_baseline = false})(rewards, Groups::uniform(4, 2));
  const double deviation = std::sqrt(14.0 / 3.0), scale = deviation + 1e-4;
  rlalgo::support::check_close(out.advantage, {-2 / scale, 0, -1 / scale, 3 / scale});
  rlalgo::support::check_close(out.spread, {deviation, deviation, deviation, deviation});
}

TEST_CASE("an unscorable sample has advantage 0 and no influence") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> rewards = {1, nan, 3, 2, 6, nan};
  const auto out = BatchWhitened()(rewards, Groups::uniform(6, 3));
  const double scale = std::sqrt(10.0 / 3.0) + 1e-4;
  rlalgo::support::check_close(out.advantage, {-1 / scale, 0, 1 / scale, -2 / scale, 2 / scale, 0});
}
