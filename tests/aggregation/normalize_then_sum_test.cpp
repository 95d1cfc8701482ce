#include <cmath>
#include <vector>

#include <support/advantage_cases.hpp>
#include <support/catch.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/aggregation/normalize_then_sum.hpp>

using namespace rlalgo;
using advantage::GroupRelative;
using aggregation::NormalizeThenSum;
using rlalgo::support::none;

static_assert(aggregation::AggregationFor<NormalizeThenSum, GroupRelative<>>);
static_assert(aggregation::AggregationFor<NormalizeThenSum, advantage::LeaveOneOut>);

TEST_CASE("published GDPO advantages") {
  for (const auto& c : rlalgo::support::advantage_cases())
    rlalgo::support::check_close(NormalizeThenSum()(GroupRelative<>(), c.table(), c.groups()).advantage, c.gdpo);
}

TEST_CASE("the spread is the deviation of the summed scores, the same for all samples") {
  const auto& c = rlalgo::support::advantage_cases()[1];
  const auto result = NormalizeThenSum()(GroupRelative<>(), c.table(), c.groups());
  for (const double s : result.spread) CHECK(s == Approx(1.1082537435).epsilon(0).margin(1e-10));
}

TEST_CASE("one function of weight 1: group-relative advantages times one factor") {
  const auto& c = rlalgo::support::advantage_cases()[0];
  const auto result = NormalizeThenSum()(GroupRelative<>(), c.table(), c.groups());
  for (std::size_t i = 0; i < c.group.size(); ++i)
    CHECK(result.advantage[i] == Approx(1.0802837159 * c.group[i]).epsilon(0).margin(1e-9));
}

TEST_CASE("a sample that nothing applies to has advantage 0 and does not move the whitening") {
  core::RewardTable with({"a"}, {}, 4), without({"a"}, {}, 3);
  const std::vector<double> rewards = {1, 0, 4};
  for (std::size_t i = 0; i < 3; ++i) with(i, 0) = without(i, 0) = rewards[i];
  const auto a = NormalizeThenSum()(GroupRelative<>(), with, core::Groups::uniform(4, 4)).advantage;
  const auto b = NormalizeThenSum()(GroupRelative<>(), without, core::Groups::uniform(3, 3)).advantage;
  CHECK(a == std::vector<double>{b[0], b[1], b[2], 0});
}

TEST_CASE("constant rewards have advantage and spread exactly 0; groups of one too") {
  core::RewardTable table({"a", "b"}, {}, 7);
  for (std::size_t i = 0; i < 7; ++i) {
    table(i, 0) = 3.3;
    table(i, 1) = 0.1;
  }
  for (const std::size_t group_size : {std::size_t{7}, std::size_t{1}}) {
    const auto result = NormalizeThenSum()(GroupRelative<>(), table, core::Groups::uniform(7, group_size));
    for (const double a : result.advantage) CHECK(a == 0.0);
    for (const double s : result.spread) CHECK(s == 0.0);
  }
}
