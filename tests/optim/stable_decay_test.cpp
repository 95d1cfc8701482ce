#include <support/catch.hpp>

#include <cmath>

#include <rlalgo/optim/stable_decay.hpp>

using rlalgo::optim::stable_decay;
using rlalgo::optim::StableDecayConfig;
using Shape = rlalgo::optim::StableDecayConfig::Shape;

TEST_CASE("warm-up, stable rate, decay: linear") {
  const StableDecayConfig config{.decay = Shape::linear};
  const double expected[] = {0.2, 0.6, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2};  // m + (1 − m)·x, m = 0.2
  for (int t = 0; t < 11; ++t) CHECK(stable_decay(config, {2, 3, 4}, 0.2, 0.5, t) == Approx(expected[t]));
}

TEST_CASE("the shapes of warm-up and decay") {
  const double half = std::sqrt(0.5);
  CHECK(stable_decay({.warmup = Shape::cosine}, {4, 0, 4}, 0, 0.5, 2) == Approx(0.5));
  CHECK(stable_decay({.warmup = Shape::cosine}, {4, 0, 4}, 0, 0.5, 1) == Approx(0.5 - half / 2));
  CHECK(stable_decay({.warmup = Shape::one_minus_sqrt}, {4, 0, 4}, 0, 0.5, 2) == Approx(1 - half));
  CHECK(stable_decay({}, {0, 4, 4}, 0, 0.5, 5) == Approx(0.5 + half / 2));
  CHECK(stable_decay({}, {0, 4, 4}, 0, 1.0, 6) == Approx(0.0).margin(1e-15));  // a whole wave: the trough
  CHECK(stable_decay({.decay = Shape::one_minus_sqrt}, {0, 4, 4}, 0, 0.5, 6) == Approx(1 - half));
  CHECK(stable_decay({}, {0, 0, 0}, 0.1, 0.5, 0) == 0.1);
}
