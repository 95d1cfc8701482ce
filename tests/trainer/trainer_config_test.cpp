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
