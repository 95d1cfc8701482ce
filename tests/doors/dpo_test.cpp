#include <support/catch.hpp>
#include <support/preference_door.hpp>

#include <rlalgo/dpo.hpp>

using namespace rlalgo;

TEST_CASE("dpo: the paper's loss on one pair, and other objectives in its place") {
  const auto p = rlalgo::support::arm_log_probs();
  const double margin = (p[1] + p[2] + 2 * std::log(4.0)) - (p[3] + std::log(4.0));
  CHECK(rlalgo::support::first_loss<Dpo>({.method = {.beta = 0.5}}) ==
        Approx(std::log1p(std::exp(-0.5 * margin))).epsilon(1e-6));
  CHECK(rlalgo::support::first_loss<BasicDpo<loss::Hinge>>({.method = {.beta = 0.5}}) ==
        Approx(1 - 0.5 * margin).epsilon(1e-6));
  CHECK(TrainConfig<Dpo>{}.method.beta == 0.1);
}
