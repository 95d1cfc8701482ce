#include <support/catch.hpp>

#include <ATen/ops/tensor.h>

#include <rlalgo/config/policy_gradient.hpp>

using namespace rlalgo;

namespace {

// The loss inputs of the online-RL specification, section 7.2 (token level, epsilon 0.2, one micro-batch).
loss::Scored golden() {
  loss::Scored s;
  s.log_prob = at::tensor({-1.0, -0.5, -2.0, -0.3, -0.7, -1.2}, at::kDouble).requires_grad_(true);
  s.old_log_prob = at::tensor({-1.3, -0.4, -2.1, -0.9, -1.0, -1.1}, at::kDouble);
  s.reference_log_prob = at::tensor({-1.1, -0.6, -1.8, -0.5, -0.9, -1.0}, at::kDouble);
  s.mask = at::tensor({1, 1, 1, 1, 1, 1}, at::kDouble);
  s.row = at::tensor({0, 0, 0, 0, 1, 1}, at::kLong);
  s.row_length = at::tensor({4, 2}, at::kDouble);
  s.advantage = at::tensor({1.5, -0.8}, at::kDouble);
  return s;
}

double value(const config::RunConfig& run) {
  return config::with_policy_gradient(run, [](auto loss) {
    return loss(golden(), {.rows = 2, .tokens = 6, .micro_batches = 1}).value.template item<double>();
  });
}

config::RunConfig run_of(const std::string& loss_type) {
  config::RunConfig run;
  run.trl.loss_type = loss_type;
  run.trl.max_completion_length = 8;
  return run;
}

}  // namespace

TEST_CASE("each loss_type is the loss of that name") {
  CHECK(value(run_of("grpo")) == Approx(-0.3759373179).margin(1e-9));
  CHECK(value(run_of("bnpo")) == Approx(-0.8018759206).margin(1e-9));
  CHECK(value(run_of("dapo")) == Approx(-0.8018759206).margin(1e-9));
  CHECK(value(run_of("dr_grpo")) == Approx(-0.3007034702).margin(1e-9));
}

TEST_CASE("level, clip and penalty reach the loss") {
  config::RunConfig run = run_of("grpo");
  run.trl.importance_sampling_level = "sequence";
  CHECK(value(run) == Approx(-0.4579316328).margin(1e-9));
  run = run_of("grpo");
  run.beta = 0.04;
  CHECK(value(run) == Approx(-0.3752869410).margin(1e-9));
  run.trl.use_bias_correction_kl = true;
  CHECK(value(run) == Approx(-0.3751473677).margin(1e-9));
  run = run_of("dapo");
  run.trl.epsilon_high = 0.28;
  run.trl.delta = 1.3;
  CHECK(value(run) == Approx(-0.8485237616).margin(1e-9));
}

TEST_CASE("an unknown loss_type is config.22, scale_rewards maps to the estimator") {
  CHECK_THROWS_WITH(value(run_of("ppo")), Catch::Contains("[rlalgo.config.22]"));
  config::RunConfig run;
  CHECK(config::group_relative(run).scale == advantage::Scale::group);
  run.trl.scale_rewards = "batch";
  CHECK(config::group_relative(run).scale == advantage::Scale::batch);
  run.trl.scale_rewards = "none";
  CHECK(config::group_relative(run).scale == advantage::Scale::none);
}
