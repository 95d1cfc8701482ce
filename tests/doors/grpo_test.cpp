#include <rlalgo/grpo.hpp>
#include <support/catch.hpp>
#include <support/door.hpp>

using namespace rlalgo;

TEST_CASE("grpo: a completion counts once, whatever its length") {
  for (const std::int64_t parts : {1, 2, 3, 12}) {
    const rlalgo::support::DoorStep step = rlalgo::support::run_door(
        GrpoConfig<>{}, [](auto config, auto inputs) { return make_grpo(config, std::move(inputs)); }, parts);
    REQUIRE(step.rows.size() == 12);
    const double tokens = rlalgo::support::token_count(step.rows);
    REQUIRE(tokens > 12);
    const double expected = rlalgo::support::expected_norm(step.rows, [&](double n) { return 1.0 / (n * 12.0); });
    CHECK(expected > 0.01);
    CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
    CHECK(step.result.metrics.value("clip_ratio/region_mean") == 0.0);
  }
}

TEST_CASE("grpo with a KL penalty refuses to start without a reference") {
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(4);
  rlalgo::support::BanditPulls pulls{*bandit};
  GrpoConfig<loss::K3Kl> config;
  config.run.rollouts.geometry = {.micro_batch_size = 8, .num_generations = 8};
  config.run.trainer.loop.max_steps = 1;
  const auto reward = reward::from("one", [](const std::string&) { return 1.0; });
  using Reference = std::shared_ptr<rlalgo::support::Bandit>;  // its type says that there is one; it may be null
  trainer::OnlineInputs<rlalgo::support::BanditPulls, sync::SharedWeights, Reference> inputs{
      .policy = bandit,
      .generator = pulls,
      .prompts = {{.row = 0, .ids = {0}, .prompt = "p", .columns = {}}},
      .rewards = {{reward}}};
  CHECK_THROWS_WITH(make_grpo(config, inputs), Catch::Contains("[rlalgo.trainer.20]"));
  // At the reference itself the penalty is 0.
  const auto reference = std::make_shared<rlalgo::support::Bandit>(4);
  inputs.reference = reference;
  auto trainer = make_grpo(config, inputs);
  CHECK(trainer.step(0).metrics.value("kl") == 0.0);
}
