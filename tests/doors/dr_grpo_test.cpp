#include <rlalgo/dr_grpo.hpp>
#include <support/catch.hpp>
#include <support/door.hpp>

using namespace rlalgo;

TEST_CASE("dr_grpo: every token weighs 1 / (rows · max_completion_length), advantages are not scaled") {
  for (const std::int64_t parts : {1, 2, 3, 12}) {
    const rlalgo::support::DoorStep step = rlalgo::support::run_door(
        DrGrpoConfig<>{}, [](auto config, auto inputs) { return make_dr_grpo(config, std::move(inputs)); }, parts);
    REQUIRE(step.rows.size() == 12);
    const double tokens = rlalgo::support::token_count(step.rows);
    REQUIRE(tokens > 12);
    const double expected = rlalgo::support::expected_norm(step.rows, [&](double /*n*/) { return 1.0 / (3.0 * 12.0); });
    CHECK(expected > 0.01);
    CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
    CHECK(step.result.metrics.value("clip_ratio/region_mean") == 0.0);
  }
}

TEST_CASE("dr_grpo with the deviation is another type") {
  using Pulls = rlalgo::support::BanditPulls;
  STATIC_REQUIRE_FALSE(
      std::same_as<DrGrpo<Pulls>,
                   DrGrpo<Pulls, loss::NoKl, loss::TokenRatio, sync::SharedWeights, advantage::Scale::group>>);
  const rlalgo::support::DoorStep step = rlalgo::support::run_door(DrGrpoConfig<>{}, [](auto config, auto inputs) {
    return make_dr_grpo<loss::NoKl, loss::TokenRatio, advantage::Scale::group>(config, std::move(inputs));
  });
  const double expected = rlalgo::support::expected_norm(step.rows, [](double /*n*/) { return 1.0 / (3.0 * 12.0); });
  CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
}
