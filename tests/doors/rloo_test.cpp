#include <rlalgo/rloo.hpp>
#include <support/catch.hpp>
#include <support/door.hpp>

using namespace rlalgo;

TEST_CASE("rloo: the baseline leaves the completion itself out, and a completion is one action") {
  for (const std::int64_t parts : {1, 2, 3, 12}) {
    rlalgo::support::DoorStep step = rlalgo::support::run_door<Rloo>(parts, {.method = {.penalty = {.beta = 0.0}}});
    REQUIRE(step.episodes.size() == 12);
    REQUIRE(rlalgo::support::token_count(step.episodes) > 12);
    constexpr double others = rlalgo::support::door_group - 1;
    for (auto& row : step.episodes) row.advantage *= rlalgo::support::door_group / others;
    const double expected = rlalgo::support::expected_norm(step.episodes, [&](double /*n*/) { return 1.0 / 12.0; });
    CHECK(expected > 0.01);
    CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
  }
}
