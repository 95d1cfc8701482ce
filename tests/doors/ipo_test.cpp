#include <support/catch.hpp>
#include <support/preference_door.hpp>

#include <rlalgo/ipo.hpp>

using namespace rlalgo;

TEST_CASE("ipo: the squared distance of mean log-ratios to 1/(2β)") {
  const auto p = rlalgo::support::arm_log_probs();
  const double mean = (p[1] + p[2]) / 2 - p[3];
  CHECK(rlalgo::support::first_loss<Ipo>({.method = {.beta = 0.5}}) == Approx((mean - 1) * (mean - 1)).epsilon(1e-6));
}
