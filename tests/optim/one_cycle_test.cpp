#include <support/catch.hpp>

#include <rlalgo/optim/one_cycle.hpp>

using rlalgo::optim::one_cycle;
using rlalgo::optim::OneCycleConfig;

TEST_CASE("one cycle: up to the peak, down to almost nothing, the momentum against it") {
  // T = 10, s = 0.3: the rise ends at update 2, the fall at update 9.
  const OneCycleConfig straight{.straight = true, .div_factor = 10.0, .final_div_factor = 100.0};
  const double rates[] = {0.1, 0.55, 1.0, 1 - 0.999 / 7, 1 - 2 * 0.999 / 7};
  const double momenta[] = {0.95, 0.9, 0.85, 0.85 + 0.1 / 7, 0.85 + 0.2 / 7};
  for (int t = 0; t < 5; ++t) {
    CHECK(one_cycle(straight, 0.3, 10, t).factor == Approx(rates[t]));
    CHECK(one_cycle(straight, 0.3, 10, t).momentum == Approx(momenta[t]));
  }
  CHECK(one_cycle(straight, 0.3, 10, 9).factor == Approx(1e-3));
  CHECK(one_cycle(straight, 0.3, 10, 9).momentum == Approx(0.95));
  // Half of the cosine lies in the middle of a phase.
  CHECK(one_cycle({}, 0.3, 10, 1).factor == Approx((1 + 1 / 25.0) / 2));
  CHECK(one_cycle({}, 0.3, 10, 5.5).factor == Approx((1 + 1 / 25.0 / 1e4) / 2));
}

TEST_CASE("three phases: the fall is as long as the rise, the rest goes below the beginning") {
  const OneCycleConfig config{.straight = true, .three_phases = true, .div_factor = 10.0, .final_div_factor = 100.0};
  // T = 11, s = 4/11: ends at updates 3, 6 and 10.
  CHECK(one_cycle(config, 4.0 / 11, 11, 3).factor == Approx(1.0));
  CHECK(one_cycle(config, 4.0 / 11, 11, 6).factor == Approx(0.1));
  CHECK(one_cycle(config, 4.0 / 11, 11, 6).momentum == Approx(0.95));
  CHECK(one_cycle(config, 4.0 / 11, 11, 8).factor == Approx(0.1 - 0.099 / 2));
  CHECK(one_cycle(config, 4.0 / 11, 11, 8).momentum == Approx(0.95));
  CHECK(one_cycle(config, 4.0 / 11, 11, 10).factor == Approx(1e-3));
}

TEST_CASE("without a rise, with a rise of one step, and after the end") {
  CHECK(one_cycle({}, 0.0, 4, 3).factor == Approx(1 / 25.0 / 1e4));
  CHECK(one_cycle({}, 0.25, 4, 0).factor == 1.0);  // a phase of no length is over
  CHECK(one_cycle({}, 0.25, 4, 100).factor == Approx(1 / 25.0 / 1e4));
  CHECK(one_cycle({}, 1.0, 1, 0).factor == 1.0);
}
