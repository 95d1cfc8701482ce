#include <rlalgo/aggregation/any_aggregation.hpp>

#include <support/catch.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/normalize_then_sum.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>

using namespace rlalgo;

TEST_CASE("any aggregation behind one type is that aggregation") {
  core::RewardTable rewards({"a", "b"}, {1.0, 2.0}, 4);
  const double values[4][2] = {{1, 0.2}, {0, 0.8}, {1, 0.5}, {0, 3}};
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t k = 0; k < 2; ++k) rewards(i, k) = values[i][k];
  core::Groups groups;
  groups.append(2);
  groups.append(2);
  const advantage::GroupRelative<> estimator;
  using Any = aggregation::AnyAggregation<advantage::GroupRelative<>>;
  STATIC_REQUIRE(aggregation::AggregationFor<Any, advantage::GroupRelative<>>);
  const Any sum{aggregation::SumThenNormalize()}, each{aggregation::NormalizeThenSum()};
  CHECK(sum(estimator, rewards, groups).advantage ==
        aggregation::SumThenNormalize()(estimator, rewards, groups).advantage);
  CHECK(each(estimator, rewards, groups).advantage ==
        aggregation::NormalizeThenSum()(estimator, rewards, groups).advantage);
  CHECK(sum(estimator, rewards, groups).advantage != each(estimator, rewards, groups).advantage);
}
