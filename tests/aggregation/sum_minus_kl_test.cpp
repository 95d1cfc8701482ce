#include <rlalgo/aggregation/sum_minus_kl.hpp>

#include <support/catch.hpp>

#include <rlalgo/advantage/leave_one_out.hpp>

using namespace rlalgo;

namespace {
void check(const aggregation::SumMinusKl& aggregation, std::span<const double> divergence,
           const std::vector<double>& expected) {
  const double values[] = {1, 0, 0, 1, 0.5, 0.2, 0.9, 0.4};
  core::RewardTable rewards({"a"}, {1.0}, 8);
  for (std::size_t i = 0; i < 8; ++i) rewards(i, 0) = values[i];
  core::Groups groups;
  groups.append(4);
  groups.append(4);
  const auto result = aggregation(advantage::LeaveOneOut(), rewards, groups, divergence);
  for (std::size_t i = 0; i < 8; ++i) {
    INFO(i);
    CHECK(result.advantage[i] == Approx(expected[i]).margin(1e-9));
    CHECK(result.reward[i] == values[i]);
  }
}
}  // namespace

// Reference: TRL's RLOOTrainer in float64.
TEST_CASE("the penalty is part of the reward, the clip is of the task reward only") {
  const double k[] = {0.5, -0.2, 0.1, 0, 1, 0.4, -0.3, 0.2};
  check(aggregation::SumMinusKl(), k,
        {0.64, -0.6466666667, -0.6666666667, 0.6733333333, -0.045, -0.405, 0.575, -0.125});
  check(aggregation::SumMinusKl({.beta = 0.0, .range = std::pair{0.3, 0.8}}), {},
        {0.3333333333, -0.3333333333, -0.3333333333, 0.3333333333, 0, -0.2666666667, 0.4, -0.1333333333});
  CHECK(aggregation::SumMinusKl().needs_divergence());
  CHECK_FALSE(aggregation::SumMinusKl({.beta = 0.0}).needs_divergence());
}
