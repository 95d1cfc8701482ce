#include <rlalgo/vespo.hpp>
#include <support/catch.hpp>
#include <support/door.hpp>

using namespace rlalgo;

TEST_CASE("vespo: the weight is 1 on-policy: every token of the step weighs the same") {
  for (const std::int64_t parts : {1, 2, 3, 12}) {
    rlalgo::support::DoorStep step = rlalgo::support::run_door<Vespo>(parts);
    REQUIRE(step.episodes.size() == 12);
    REQUIRE(rlalgo::support::token_count(step.episodes) > 12);
    const double tokens = rlalgo::support::token_count(step.episodes);
    const double expected = rlalgo::support::expected_norm(step.episodes, [&](double /*n*/) { return 1.0 / tokens; });
    CHECK(expected > 0.01);
    CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
  }
}
