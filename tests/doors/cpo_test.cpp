#include <support/catch.hpp>
#include <support/preference_door.hpp>

#include <rlalgo/cpo.hpp>

using namespace rlalgo;

TEST_CASE("cpo: contrast of summed log-probs, and the likelihood of the chosen answer") {
  const auto p = rlalgo::support::arm_log_probs();
  const double margin = p[1] + p[2] - p[3];
  TrainConfig<Cpo> config;
  config.method.beta = 0.5;
  CHECK(rlalgo::support::first_loss(config) ==
        Approx(std::log1p(std::exp(-0.5 * margin)) - (p[1] + p[2]) / 2).epsilon(1e-6));
}
