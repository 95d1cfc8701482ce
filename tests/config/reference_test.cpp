#include <support/scratch.hpp>

#include <rlalgo/config/reference.hpp>

using namespace rlalgo::config;

TEST_CASE("a recipe without reference has none") {
  RunConfig c;
  c.rl = "orpo";
  CHECK_FALSE(needs_reference(c));
  c.rl = "ipo";
  CHECK(needs_reference(c));
}
