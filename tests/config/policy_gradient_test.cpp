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
  s.sampling_log_prob = at::tensor({-1.2, -0.6, -2.0, -2.1, -1.4, -0.9}, at::kDouble);
  s.entropy = at::tensor({1.1, 0.4, 2.0, 0.2, 0.9, 1.5}, at::kDouble);
  s.mask = at::tensor({1, 1, 1, 1, 1, 1}, at::kDouble);
  s.row = at::tensor({0, 0, 0, 0, 1, 1}, at::kLong);
  s.row_length = at::tensor({4, 2}, at::kDouble);
  s.advantage = at::tensor({1.5, -0.8}, at::kDouble);
  return s;
}

double value(const config::RunConfig& run) {
  return config::with_policy_gradient(run, config::entropy_coefficient(run), [](auto loss) {
    return loss(golden(), {.rows = 2, .tokens = 6, .micro_batches = 1}).value.template item<double>();
  });
}

config::RunConfig run_of(const std::string& loss_type) {
  config::RunConfig run;
  run.rl = "grpo";
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
  CHECK(value(run_of("cispo")) == Approx(0.1393333333).margin(1e-9));
  CHECK(value(run_of("sapo")) == Approx(-0.9007403757).margin(1e-9));
  CHECK(value(run_of("vespo")) == Approx(-0.2243854738).margin(1e-9));
  config::RunConfig luspo = run_of("luspo");
  luspo.trl.importance_sampling_level = "sequence";
  CHECK(value(luspo) == Approx(-2.7158632655).margin(1e-9));
  config::RunConfig cispo = run_of("cispo");
  cispo.trl.epsilon_high = 5.0;
  CHECK(value(cispo) == Approx(0.8690529393).margin(1e-9));
  config::RunConfig sapo = run_of("sapo");
  sapo.trl.sapo_temperature_pos = 2.0;
  sapo.trl.sapo_temperature_neg = 3.0;
  CHECK(value(sapo) == Approx(-0.6297489815).margin(1e-9));
}

TEST_CASE("entropy_coef takes the bonus off the loss, an adaptive coefficient waits") {
  config::RunConfig run = run_of("dapo");
  run.trl.entropy_coef = 0.1;
  CHECK(value(run) == Approx(-0.9035425873).margin(1e-9));
  run.trl.top_entropy_quantile = 0.5;
  CHECK(value(run) == Approx(-0.5323144071).margin(1e-9));
  run.trl.loss_type = "grpo";
  CHECK(value(run) == Approx(-0.4045853969).margin(1e-9));
  run.trl.top_entropy_quantile = 1.0;
  CHECK(value(run) == Approx(-0.4776039846).margin(1e-9));
  run.trl.use_adaptive_entropy = true;
  CHECK(value(run) == Approx(-0.3759373179).margin(1e-9));
  CHECK(config::entropy_coefficient(run_of("dapo")) == nullptr);
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
  run = run_of("grpo");
  run.trl.importance_sampling_level = "sequence_token";
  CHECK(value(run) == Approx(-0.4579316328).margin(1e-9));
}

TEST_CASE("weights reach the loss, the correction only where a server generates") {
  config::RunConfig run = run_of("dapo");
  run.trl.top_entropy_quantile = 0.5;
  CHECK(value(run) == Approx(-0.4556477404).margin(1e-9));
  run = run_of("dapo");
  run.trl.off_policy_mask_threshold = -0.3;  // D of the second row: ((−1.4 + 0.7) + (−0.9 + 1.2)) / 2 = −0.2
  CHECK(value(run) == Approx(-1.1025020840).margin(1e-9));
  run = run_of("dapo");
  CHECK_FALSE(config::sampling_correction(run));
  run.trl.use_vllm = true;
  CHECK(value(run) == Approx(0.3671856252).margin(1e-9));
  run.trl.vllm_importance_sampling_mode = "token_truncate";
  run.trl.vllm_importance_sampling_clip_max = 2.0;
  run.trl.vllm_importance_sampling_clip_min = 0.7;
  CHECK(value(run) == Approx(-1.0304678312).margin(1e-9));
  run.trl.vllm_importance_sampling_correction = false;
  CHECK(value(run) == Approx(-0.8018759206).margin(1e-9));
  run.trl.vllm_importance_sampling_correction = true;
  run.trl.vllm_mode = "colocate";
  CHECK(value(run) == Approx(-0.8018759206).margin(1e-9));
}

TEST_CASE("rloo: ratio of the whole completion, leave-one-out advantages, penalty in the reward") {
  config::RunConfig run = run_of("grpo");
  run.rl = "rloo";
  run.beta = 0.05;
  CHECK(value(run) == Approx(-0.4114388967).margin(1e-9));
  CHECK(config::reward_aggregation(run).needs_divergence());
  run.beta = 0.0;
  CHECK_FALSE(config::reward_aggregation(run).needs_divergence());
  core::RewardTable rewards({"a"}, {1.0}, 4);
  const double values[] = {1, 0, 0, 1};
  for (std::size_t i = 0; i < 4; ++i) rewards(i, 0) = values[i];
  core::Groups groups;
  groups.append(4);
  CHECK(config::reward_aggregation(run)(config::estimator(run), rewards, groups).advantage[0] ==
        Approx(0.6666666667).margin(1e-9));
}

TEST_CASE("gdpo normalises each reward by its group") {
  core::RewardTable rewards({"a", "b"}, {1.0, 2.0}, 6);
  const double values[6][2] = {{1, 0.2}, {0, 0.8}, {1, 0.5}, {0, 3}, {0, 1}, {1, -1}};
  for (std::size_t i = 0; i < 6; ++i)
    for (std::size_t k = 0; k < 2; ++k) rewards(i, k) = values[i][k];
  core::Groups groups;
  groups.append(3);
  groups.append(3);
  config::RunConfig run;
  run.rl = "grpo";
  const auto first = [&] {
    return config::reward_aggregation(run)(config::estimator(run), rewards, groups).advantage[0];
  };
  CHECK(first() == Approx(-0.8725859401).margin(1e-9));
  run.trl.scale_rewards = "batch";
  CHECK(first() == Approx(-0.1180304809).margin(1e-9));
  run.trl.multi_objective_aggregation = "normalize_then_sum";
  CHECK(first() == Approx(-1.2830590209).margin(1e-9));
}

TEST_CASE("an unknown loss_type is config.22, scale_rewards maps to the estimator") {
  CHECK_THROWS_WITH(value(run_of("ppo")), Catch::Contains("[rlalgo.config.22]"));
  config::RunConfig run;
  const std::vector<double> rewards = {0, 1, 5, 9};
  core::Groups groups = core::Groups::uniform(4, 2);
  const auto first = [&] { return config::group_relative(run)(rewards, groups).advantage[0]; };
  CHECK(first() == advantage::GroupRelative<advantage::Scale::group>()(rewards, groups).advantage[0]);
  run.trl.scale_rewards = "batch";
  CHECK(first() == advantage::GroupRelative<advantage::Scale::batch>()(rewards, groups).advantage[0]);
  run.trl.scale_rewards = "none";
  CHECK(first() == -0.5);
}
