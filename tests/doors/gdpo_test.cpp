#include <rlalgo/gdpo.hpp>
#include <support/catch.hpp>
#include <support/door.hpp>

using namespace rlalgo;

TEST_CASE("gdpo: with one reward it is GRPO, whitened over the batch") {
  for (const std::int64_t parts : {1, 2, 3, 12}) {
    rlalgo::support::DoorStep step = rlalgo::support::run_door<Gdpo>(parts);
    REQUIRE(step.episodes.size() == 12);
    REQUIRE(rlalgo::support::token_count(step.episodes) > 12);
    const double deviation = rlalgo::support::deviation(step.episodes);
    for (auto& row : step.episodes) row.advantage /= deviation + 1e-4;
    const double expected = rlalgo::support::expected_norm(step.episodes, [&](double n) { return 1.0 / n / 12.0; });
    CHECK(expected > 0.01);
    CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
  }
}
