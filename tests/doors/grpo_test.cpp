#include <rlalgo/grpo.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <support/catch.hpp>
#include <support/door.hpp>

using namespace rlalgo;

TEST_CASE("grpo: a completion counts once, whatever its length") {
  for (const std::int64_t parts : {1, 2, 3, 12}) {
    const rlalgo::support::DoorStep step = rlalgo::support::run_door<Grpo>(parts);
    REQUIRE(step.episodes.size() == 12);
    const double tokens = rlalgo::support::token_count(step.episodes);
    REQUIRE(tokens > 12);
    const double expected = rlalgo::support::expected_norm(step.episodes, [&](double n) { return 1.0 / (n * 12.0); });
    CHECK(expected > 0.01);
    CHECK(step.result.grad_norm == Approx(expected).epsilon(1e-12));
    CHECK(step.result.metrics.value("clip_ratio/region_mean") == 0.0);
  }
}

TEST_CASE("grpo with a KL penalty refuses to start without a reference") {
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(4);
  rlalgo::support::BanditPulls pulls{*bandit};
  using GrpoWithKl = BasicGrpo<loss::K3Kl>;
  TrainConfig<GrpoWithKl> config;
  config.run.rollouts.geometry = {.micro_batch_size = 8, .num_generations = 8};
  config.run.trainer.loop.max_steps = 1;
  const auto reward = reward::from("one", [](const std::string&) { return 1.0; });
  using Reference = std::shared_ptr<rlalgo::support::Bandit>;  // its type says that there is one; it may be null
  trainer::OnlineInputs<rlalgo::support::BanditPulls, sync::SharedWeights, Reference> inputs{
      .policy = bandit,
      .generator = pulls,
      .prompts = {{.row = 0, .ids = {0}, .prompt = "p", .columns = {}}},
      .rewards = {{reward}}};
  CHECK_THROWS_WITH(make_trainer<GrpoWithKl>(config, inputs), Catch::Contains("[rlalgo.trainer.20]"));
  // At the reference itself the penalty is 0.
  const auto reference = std::make_shared<rlalgo::support::Bandit>(4);
  inputs.reference = reference;
  auto trainer = make_trainer<GrpoWithKl>(config, inputs);
  CHECK(trainer.step(0).metrics.value("kl") == 0.0);
}

TEST_CASE("a callable is a reward, and any optimizer trains a method") {
  const auto bandit = std::make_shared<rlalgo::support::Bandit>(4);
  rlalgo::support::BanditPulls pulls{*bandit};
  TrainConfig<Grpo, optim::AdamW8bit> config;
  config.run.rollouts.geometry = {.micro_batch_size = 8, .num_generations = 8};
  config.run.trainer.loop.max_steps = 1;
  auto trainer = make_trainer<Grpo>(config, trainer::OnlineInputs<rlalgo::support::BanditPulls>{
                                                .policy = bandit,
                                                .generator = pulls,
                                                .prompts = {{.row = 0, .ids = {0}, .prompt = "p", .columns = {}}},
                                                .rewards = {[](const reward::Sample& s) { return s.ids[0] / 4.0; },
                                                            {"second", [](const std::string&) { return 1.0; }, 0.5}}});
  STATIC_REQUIRE(std::same_as<decltype(trainer),
                              trainer::OnlineTrainer<Grpo::Loss, Grpo::Estimator, rlalgo::support::BanditPulls,
                                                     Grpo::Aggregation, sync::SharedWeights, optim::AdamW8bit>>);
  const run::StepResult step = trainer.step(0);
  CHECK(step.metrics.value("rewards/second/mean") == 1.0);
  CHECK(step.metrics.value("reward") == Approx(step.metrics.value("rewards/reward/mean") + 0.5));
}
