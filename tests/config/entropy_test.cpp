#include <support/catch.hpp>

#include <rlalgo/config/entropy.hpp>

using namespace rlalgo;

TEST_CASE("the keys of the entropy bonus become one coefficient") {
  config::RunConfig run;
  run.rl = "grpo";
  CHECK(config::entropy_coefficient(run) == nullptr);
  run.trl.entropy_coef = 0.05;
  const auto fixed = config::entropy_coefficient(run);
  CHECK(fixed->applied() == 0.05);
  CHECK_FALSE(fixed->is_adaptive());
  run.trl.use_adaptive_entropy = true;
  run.trl.entropy_coef_delta = 0.01;
  run.trl.entropy_coef_max = 0.055;
  run.trl.entropy_target = 1.5;
  const auto adaptive = config::entropy_coefficient(run);
  CHECK(adaptive->applied() == 0.0);
  adaptive->observe(1.4);
  CHECK(adaptive->applied() == 0.055);
  run.rl = "rloo";
  CHECK(config::entropy_coefficient(run) == nullptr);
}
