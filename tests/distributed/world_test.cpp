#include <support/catch.hpp>

#include <array>

#include <rlalgo/distributed/world.hpp>

TEST_CASE("a world of one rank leaves sums as they are") {
  rlalgo::distributed::World world;
  CHECK(world.rank() == 0);
  CHECK(world.size() == 1);
  std::array<double, 2> values = {1.5, -2.0};
  world.sum(values);
  CHECK(values == std::array<double, 2>{1.5, -2.0});
}
