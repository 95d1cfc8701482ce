#include <support/catch.hpp>
#include <support/preference_door.hpp>

#include <rlalgo/dpo.hpp>

using namespace rlalgo;

TEST_CASE("dpo: the paper's loss on one pair, and other objectives in its place") {
  const auto p = rlalgo::support::arm_log_probs();
  const double margin = (p[1] + p[2] + 2 * std::log(4.0)) - (p[3] + std::log(4.0));
  const auto make = [](auto config, auto inputs) { return make_dpo(std::move(config), std::move(inputs)); };
  CHECK(rlalgo::support::first_loss(DpoConfig<>{.loss = {.beta = 0.5}}, make) ==
        Approx(std::log1p(std::exp(-0.5 * margin))).epsilon(1e-6));
  CHECK(rlalgo::support::first_loss(DpoConfig<loss::Hinge>{.loss = {.beta = 0.5}}, make) ==
        Approx(1 - 0.5 * margin).epsilon(1e-6));
  CHECK(DpoConfig<>{}.loss.beta == 0.1);
}
