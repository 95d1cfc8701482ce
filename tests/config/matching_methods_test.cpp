#include <rlalgo/config/matching_methods.hpp>

#include <algorithm>

#include <support/catch.hpp>

using namespace rlalgo::config;

TEST_CASE("two modes, and a part belongs to one row") {
  const auto& modes = matching_modes();
  REQUIRE(modes.size() == 2);
  CHECK(modes[0].strided != modes[1].strided);
  for (std::size_t i = 0; i < matching_estimators().size(); ++i)
    for (std::size_t k = 0; k < i; ++k) CHECK(matching_estimators()[i].part != matching_estimators()[k].part);
  CHECK(std::count_if(matching_estimators().begin(), matching_estimators().end(),
                      [](const MatchingEstimator& row) { return !row.compares; }) == 1);
  CHECK(std::count_if(poolings().begin(), poolings().end(), [](const PoolingRow& row) { return row.blocks; }) == 2);
}
