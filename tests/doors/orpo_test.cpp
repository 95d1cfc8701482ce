#include <support/catch.hpp>
#include <support/preference_door.hpp>

#include <rlalgo/orpo.hpp>

using namespace rlalgo;

TEST_CASE("orpo: likelihood and odds ratio of one pair") {
  const auto p = rlalgo::support::arm_log_probs();
  const double chosen = (p[1] + p[2]) / 2, rejected = p[3];
  const auto log_odds = [](double t) { return t - std::log1p(-std::exp(t)); };
  const double ratio = log_odds(chosen) - log_odds(rejected);
  TrainConfig<Orpo> config;
  config.method.beta = 0.3;
  CHECK(rlalgo::support::first_loss(config) == Approx(-chosen + 0.3 * std::log1p(std::exp(-ratio))).epsilon(1e-6));
}
