#include <rlalgo/dr_grpo.hpp>
#include <support/catch.hpp>
#include <support/door.hpp>

using namespace rlalgo;

TEST_CASE("dr_grpo: every token weighs 1 / (rows · max_completion_length), advantages are not scaled") {
  for (const std::int64_t parts : {1, 2, 3, 12}) {
    const rlalgo::support::DoorStep step = rlalgo::support::run_door<DrGrpo>(parts);
    REQUIRE(step.episodes.size() == 12);
    const double tokens = rlalgo::support::token_count(step.episodes);
    REQUIRE(tokens > 12);
    const double expected =
        rlalgo::support::expected_norm(step.episodes, [&](double /*n*/) { return 1.0 / (3.0 * 12.0); });
    CHECK(expected > 0.01);
    CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
    CHECK(step.result.metrics.value("clip_ratio/region_mean") == 0.0);
  }
}

// What TRL's loss_type dr_grpo does unless scale_rewards is none: a method of another name.
struct ScaledDrGrpo : DrGrpo {
  using Estimator = advantage::GroupRelative<advantage::Scale::group>;
  static trainer::MethodParts<Loss, Estimator, Aggregation> parts(const Config& c,
                                                                  const sampler::RolloutsConfig& sampling) {
    return {DrGrpo::parts(c, sampling).loss, Estimator(c.advantage), {}};
  }
};

TEST_CASE("dr_grpo with the deviation is a method of its own") {
  const rlalgo::support::DoorStep step = rlalgo::support::run_door<ScaledDrGrpo>(1);
  const double expected =
      rlalgo::support::expected_norm(step.episodes, [](double /*n*/) { return 1.0 / (3.0 * 12.0); });
  CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
}
