#include <support/catch.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/aggregation/none.hpp>

using namespace rlalgo;

TEST_CASE("no aggregation is none") {
  STATIC_REQUIRE_FALSE(aggregation::AggregationFor<aggregation::None, advantage::GroupRelative<>>);
}
