#include <span>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>

using namespace rlalgo;

namespace {
struct FirstColumn {
  template <class Estimator>
  aggregation::Result operator()(const Estimator&, const core::RewardTable& rewards, const core::Groups&) const {
    aggregation::Result out;
    for (std::size_t i = 0; i < rewards.rows(); ++i) out.advantage.push_back(rewards(i, 0));
    return out;
  }
};
struct LeaveOutOnly {  // fits one estimator and no other
  struct Only {};
  aggregation::Result operator()(const Only&, const core::RewardTable&, const core::Groups&) const { return {}; }
};
// A user's estimator: the aggregation of the library works with it.
struct Doubled {
  struct Config {};
  advantage::Estimate operator()(std::span<const double> rewards, const core::Groups&) const {
    advantage::Estimate out{{rewards.begin(), rewards.end()}, std::vector<double>(rewards.size(), 1.0)};
    for (double& a : out.advantage) a *= 2;
    return out;
  }
};
}  // namespace

TEST_CASE("what is an aggregation for an estimator, and what is not") {
  using advantage::GroupRelative;
  STATIC_REQUIRE(aggregation::AggregationFor<FirstColumn, GroupRelative<>>);
  STATIC_REQUIRE(aggregation::AggregationFor<LeaveOutOnly, LeaveOutOnly::Only>);
  STATIC_REQUIRE_FALSE(aggregation::AggregationFor<LeaveOutOnly, GroupRelative<>>);
  STATIC_REQUIRE_FALSE(aggregation::AggregationFor<GroupRelative<>, GroupRelative<>>);
}

TEST_CASE("an aggregation of the library takes any estimator") {
  core::RewardTable table({"a", "b"}, {1.0, 10.0}, 1);
  table(0, 0) = 1;
  table(0, 1) = 2;
  CHECK(aggregation::SumThenNormalize()(Doubled(), table, core::Groups::uniform(1, 1)).advantage ==
        std::vector<double>{42});
}
