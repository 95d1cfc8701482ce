#include <cmath>
#include <vector>

#include <support/advantage_cases.hpp>
#include <support/catch.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>

using namespace rlalgo;
using advantage::GroupRelative;
using advantage::LeaveOneOut;
using aggregation::SumThenNormalize;
using rlalgo::support::none;

static_assert(aggregation::AggregationFor<SumThenNormalize, GroupRelative<>>);
static_assert(aggregation::AggregationFor<SumThenNormalize, LeaveOneOut>);

TEST_CASE("published advantages of weighted sums") {
  for (const auto& c : rlalgo::support::advantage_cases()) {
    rlalgo::support::check_close(SumThenNormalize()(GroupRelative<>(), c.table(), c.groups()).advantage, c.group);
    rlalgo::support::check_close(SumThenNormalize()(LeaveOneOut(), c.table(), c.groups()).advantage, c.leave_one_out);
  }
}

TEST_CASE("the reward is the weighted sum over what applies, NaN where nothing does") {
  const auto& c = rlalgo::support::advantage_cases()[2];
  const auto result = SumThenNormalize()(GroupRelative<>(), c.table(), c.groups());
  const std::vector<double> expected = {1.25, 0, none, 1.05, 1, 1, .35, 0};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]))
      CHECK(std::isnan(result.reward[i]));
    else
      CHECK(result.reward[i] == Approx(expected[i]));
  }
}

TEST_CASE("weights scale a reward before the estimate") {
  core::RewardTable table({"a", "b"}, {2.0, 0.0}, 2);
  table(0, 0) = 1;
  table(1, 0) = 0;
  table(0, 1) = 100;
  table(1, 1) = -100;
  const GroupRelative<advantage::Scale::none> unscaled;
  CHECK(SumThenNormalize()(unscaled, table, core::Groups::uniform(2, 2)).advantage == std::vector<double>{1, -1});
}
