#include <rlalgo/trainer/trainer_config.hpp>

#include <rlalgo/optim/muon.hpp>

#include <type_traits>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("a trainer's configuration is TRL's where nothing is said, with the settings of its optimizer") {
  const trainer::TrainerConfig config;
  CHECK(config.temperature == 1.0);
  CHECK(config.max_grad_norm == 1.0);
  CHECK(config.router_aux_loss_coef == 0.0);
  CHECK_FALSE(config.skip_zero_advantages);
  CHECK(config.schedule_metric == "loss");
  STATIC_REQUIRE(std::is_same_v<decltype(config.optimizer), optim::AdamWConfig>);
  STATIC_REQUIRE(std::is_same_v<decltype(trainer::BasicTrainerConfig<optim::Muon>::optimizer), optim::Muon::Config>);
}

// transformers' Trainer: state.epoch of 3 batches, two of them a step, over 7 steps, and state.num_train_epochs.
TEST_CASE("an epoch is counted in micro-batches, and those that a run begins are known") {
  trainer::TrainerConfig config;
  CHECK(config.epoch_after(3) == 0.0);
  config.loop.max_steps = 7;
  config.set_epoch(2.0, 0.5);
  CHECK(config.epoch_after(0) == 0.0);
  CHECK(config.epoch_after(1) == Approx(2.0 / 3));
  CHECK(config.epoch_after(2) == 1.0);
  CHECK(config.epoch_after(3) == Approx(1 + 2.0 / 3));
  CHECK(config.epoch_after(6) == 3.0);
  CHECK(config.epoch_after(7) == Approx(3 + 2.0 / 3));
  CHECK(config.loop.num_epochs == 3.5);
  config.set_epoch(4.5);  // micro-steps that are numbered through epochs
  CHECK(config.epoch_after(9) == 2.0);
  CHECK(config.epoch_after(1) == Approx(1 / 4.5));
}
