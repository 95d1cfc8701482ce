#include <support/catch.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include <rlalgo/optim/plateau.hpp>

using rlalgo::optim::after_evaluation;
using rlalgo::optim::PlateauConfig;
using rlalgo::optim::PlateauState;

namespace {
std::vector<double> rates(const PlateauConfig& config, const std::vector<double>& values) {
  PlateauState state{.rate = 1.0};
  std::vector<double> out;
  for (const double value : values) out.push_back((state = after_evaluation(config, state, value)).rate);
  return out;
}
}  // namespace

TEST_CASE("the rate falls after more evaluations without improvement than patience bears") {
  CHECK(rates({.patience = 1}, {3, 2, 2, 2, 2, 2}) == std::vector<double>{1, 1, 1, 0.1, 0.1, 0.1 * 0.1});
  CHECK(rates({.patience = 0}, {3, 2, 1}) == std::vector<double>{1, 1, 1});
  // Better by less than the threshold is not better; a share of the best value, or a difference.
  CHECK(rates({.factor = 0.5, .patience = 0, .threshold = 0.1}, {10, 9.5, 8.9}) == std::vector<double>{1, 0.5, 0.5});
  CHECK(rates({.factor = 0.5, .patience = 0, .threshold = 0.6, .absolute = true}, {10, 9.5, 8.9}) ==
        std::vector<double>{1, 0.5, 0.5});
}

TEST_CASE("a metric that is to grow, a cooldown, a lowest rate, reductions that are too small") {
  CHECK(rates({.grows = true, .factor = 0.5, .patience = 0}, {1, 2, 2, 3}) == std::vector<double>{1, 1, 0.5, 0.5});
  CHECK(rates({.factor = 0.5, .patience = 0, .cooldown = 2}, {1, 1, 1, 1, 1}) ==
        std::vector<double>{1, 0.5, 0.5, 0.5, 0.25});
  CHECK(rates({.patience = 0, .min_rate = 0.3}, {1, 1, 1}) == std::vector<double>{1, 0.3, 0.3});
  CHECK(rates({.factor = 0.9, .patience = 0, .epsilon = 0.2}, {1, 1, 1}) == std::vector<double>{1, 1, 1});
}

TEST_CASE("a value that is not finite is never the best one") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(rates({.patience = 1}, {nan, -HUGE_VAL, 5, 6}) == std::vector<double>{1, 0.1, 0.1, 0.1});
  PlateauState state{.rate = 1.0};
  CHECK_FALSE(after_evaluation({}, state, -HUGE_VAL).best.has_value());
  CHECK(after_evaluation({}, state, 5).best == 5);
}
