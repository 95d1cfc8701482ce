#include <rlalgo/dapo.hpp>
#include <support/catch.hpp>
#include <support/door.hpp>

using namespace rlalgo;

TEST_CASE("dapo: every token of the step weighs the same") {
  for (const std::int64_t parts : {1, 2, 3, 12}) {
    const rlalgo::support::DoorStep step = rlalgo::support::run_door<Dapo>(parts);
    REQUIRE(step.episodes.size() == 12);
    const double tokens = rlalgo::support::token_count(step.episodes);
    REQUIRE(tokens > 12);
    const double expected = rlalgo::support::expected_norm(step.episodes, [&](double /*n*/) { return 1.0 / tokens; });
    CHECK(expected > 0.01);
    CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
    CHECK(step.result.metrics.value("clip_ratio/region_mean") == 0.0);
  }
}

TEST_CASE("dapo: the upper clip is the paper's") {
  CHECK(TrainConfig<Dapo>{}.method.clip.epsilon_low == 0.2);
  CHECK(TrainConfig<Dapo>{}.method.clip.epsilon_high == 0.28);
}
