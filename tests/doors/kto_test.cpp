#include <support/catch.hpp>
#include <support/preference_door.hpp>

#include <rlalgo/kto.hpp>

using namespace rlalgo;

TEST_CASE("kto: two rows, each the other's mismatched completion") {
  const auto p = rlalgo::support::arm_log_probs();
  const double good = p[1] + p[2] + 2 * std::log(4.0), bad = p[3] + std::log(4.0);
  const double z = std::max(0.0, (good + bad) / 2);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double expected = (1 - sigmoid(0.5 * (good - z)) + 1.5 * (1 - sigmoid(0.5 * (z - bad)))) / 2;
  TrainConfig<Kto> config;
  config.method = {.beta = 0.5, .undesirable_weight = 1.5};
  CHECK(rlalgo::support::first_loss(config, false) == Approx(expected).epsilon(1e-6));
  CHECK_FALSE(TrainConfig<Kto>{}.run.sampling.shuffle);
}
