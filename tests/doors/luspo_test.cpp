#include <rlalgo/luspo.hpp>
#include <support/catch.hpp>
#include <support/door.hpp>

using namespace rlalgo;

TEST_CASE("luspo: a completion weighs as much as it is long") {
  for (const std::int64_t parts : {1, 2, 3, 12}) {
    rlalgo::support::DoorStep step = rlalgo::support::run_door<Luspo>(parts);
    REQUIRE(step.episodes.size() == 12);
    REQUIRE(rlalgo::support::token_count(step.episodes) > 12);
    const double expected = rlalgo::support::expected_norm(step.episodes, [&](double /*n*/) { return 1.0 / 12.0; });
    CHECK(expected > 0.01);
    CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
  }
}
