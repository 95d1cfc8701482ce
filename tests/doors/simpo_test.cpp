#include <support/catch.hpp>
#include <support/preference_door.hpp>

#include <rlalgo/simpo.hpp>

using namespace rlalgo;

TEST_CASE("simpo: contrast of mean log-probs with a margin, and nothing else") {
  const auto p = rlalgo::support::arm_log_probs();
  const double y = 2.0 * ((p[1] + p[2]) / 2 - p[3]) - 0.5;
  CHECK(rlalgo::support::first_loss<SimPo>() == Approx(std::log1p(std::exp(-y))).epsilon(1e-6));
}
