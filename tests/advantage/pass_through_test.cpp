#include <cmath>
#include <limits>
#include <vector>

#include <support/advantage_cases.hpp>
#include <support/catch.hpp>

#include <rlalgo/advantage/pass_through.hpp>

using rlalgo::advantage::PassThrough;
using rlalgo::core::Groups;

TEST_CASE("rewards are the advantages; what cannot be scored is 0, infinite is finite") {
  const std::vector<double> rewards = {1, -3, std::numeric_limits<double>::quiet_NaN(),
                                       std::numeric_limits<double>::infinity()};
  const auto out = PassThrough()(rewards, Groups::uniform(4, 2));
  CHECK(out.advantage[0] == 1);
  CHECK(out.advantage[1] == -3);
  CHECK(out.advantage[2] == 0);
  CHECK(out.advantage[3] == std::numeric_limits<float>::max());
  CHECK(out.spread[0] == Approx(std::sqrt(8.0)));
  CHECK(out.spread[1] == Approx(std::sqrt(8.0)));
}
