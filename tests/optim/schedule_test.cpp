#include <support/catch.hpp>

#include <cmath>
#include <string>
#include <vector>

#include <rlalgo/optim/schedule.hpp>

namespace {
using rlalgo::optim::Schedule;
using rlalgo::optim::ScheduleConfig;

void check(const ScheduleConfig& config, const std::vector<double>& expected) {
  const Schedule schedule(config);
  for (std::size_t t = 0; t < expected.size(); ++t)
    CHECK(schedule(static_cast<std::int64_t>(t)) ==
          Approx(config.learning_rate * expected[t]).epsilon(1e-14).margin(1e-16));
}
}  // namespace

TEST_CASE("schedules give the rates of transformers 5 by the same names") {
  const auto config = [](const char* name, double min_ratio = 0.0) {
    return ScheduleConfig{
        .name = name, .learning_rate = 2.0, .warmup_steps = 3, .total_steps = 10, .min_ratio = min_ratio};
  };
  const double a = 1.0 / 3, b = 2.0 / 3;
  check(config("linear"), {0, a, b, 1, 6.0 / 7, 5.0 / 7, 4.0 / 7, 3.0 / 7, 2.0 / 7, 1.0 / 7, 0, 0});
  check(config("cosine"), {0, a, b, 1, 0.9504844339512095, 0.8117449009293668, 0.6112604669781572, 0.38873953302184283,
                           0.18825509907063326, 0.04951556604879048, 0, 0});
  check(config("cosine_with_min_lr", 0.1), {0, a, b, 1, 0.9554359905560885, 0.8305704108364301, 0.6501344202803414,
                                            0.44986557971965857, 0.26942958916356996, 0.14456400944391146, 0.1, 0.1});
  check(config("constant_with_warmup"), {0, a, b, 1, 1, 1});
  check(config("constant"), {1, 1, 1, 1, 1, 1});
}

TEST_CASE("a schedule without warm-up starts at its peak, and one of no steps does not divide by zero") {
  check({.name = "linear", .learning_rate = 1.0, .total_steps = 4}, {1, 0.75, 0.5, 0.25, 0});
  check({.name = "cosine", .learning_rate = 1.0, .total_steps = 2}, {1, 0.5, 0});
  check({.name = "linear", .learning_rate = 1.0, .warmup_steps = 5, .total_steps = 5}, {0, 0.2, 0.4, 0.6, 0.8, 0});
}

TEST_CASE("total_steps 0 means the steps of the run, and a schedule that falls needs one of the two") {
  const Schedule of_run({.learning_rate = 1.0}, 4), own({.learning_rate = 1.0, .total_steps = 2}, 4);
  for (const std::int64_t t : {0, 1, 2, 3}) CHECK(of_run(t) == Approx(1.0 - 0.25 * static_cast<double>(t)));
  CHECK(own(1) == Approx(0.5));
  for (const char* name : {"linear", "cosine"})
    CHECK_THROWS_WITH(Schedule({.name = name, .learning_rate = 1.0}), Catch::Matchers::Contains("[rlalgo.optim.5]"));
  CHECK(Schedule({.name = "constant", .learning_rate = 1.0})(7) == 1.0);
}

TEST_CASE("the cosine's constant ratio moves its end forward, quadratic warm-up squares the warm-up") {
  // T = ⌊0.8·10⌋ = 8: m from step 8 on.
  check({.name = "cosine", .learning_rate = 1.0, .total_steps = 10, .min_ratio = 0.2, .constant_ratio = 0.8},
        {1, 0.2 + 0.4 * (1 + 0.9238795325112867), 0.2 + 0.4 * (1 + 0.7071067811865476),
         0.2 + 0.4 * (1 + 0.3826834323650898), 0.6, 0.2 + 0.4 * (1 - 0.3826834323650898),
         0.2 + 0.4 * (1 - 0.7071067811865476), 0.2 + 0.4 * (1 - 0.9238795325112867), 0.2, 0.2, 0.2});
  check({.name = "constant_with_warmup", .learning_rate = 1.0, .warmup_steps = 4, .quadratic_warmup = true},
        {0, 0.0625, 0.25, 0.5625, 1});
}

TEST_CASE("restarts, polynomials, inverse square roots") {
  check(
      {.name = "cosine_with_restarts", .learning_rate = 1.0, .warmup_steps = 2, .total_steps = 10, .cycles = 2.0},
      {0, 0.5, 1, 0.8535533905932737, 0.5, 0.14644660940672627, 1, 0.8535533905932737, 0.5, 0.14644660940672627, 0, 0});
  check({.name = "polynomial", .learning_rate = 2.0, .total_steps = 4, .min_ratio = 0.2, .power = 2.0},
        {1, 0.2 + 0.8 * 0.5625, 0.4, 0.25, 0.2, 0.2});
  check({.name = "inverse_sqrt", .learning_rate = 1.0, .warmup_steps = 4}, {0, 0.25, 0.5, 0.75, 1, std::sqrt(0.8)});
  check({.name = "inverse_sqrt", .learning_rate = 1.0}, {1, std::sqrt(10000.0 / 10001)});
  check({.name = "inverse_sqrt", .learning_rate = 1.0, .warmup_steps = 1, .timescale = 3}, {0, 1, std::sqrt(0.75)});
}

TEST_CASE("schedules with a warm-up of their own") {
  // The last update of a warm-up has the peak, the last of the run the minimum.
  check({.name = "rex", .learning_rate = 1.0, .warmup_steps = 2, .total_steps = 6, .min_ratio = 0.1},
        {0.5, 1, 0.1 + 0.9 * 0.75 / 0.775, 0.1 + 0.9 * 0.5 / 0.55, 0.1 + 0.9 * 0.25 / 0.325, 0.1, 0.1});
  check({.name = "cosine_warmup_with_min_lr",
         .learning_rate = 1.0,
         .warmup_steps = 2,
         .total_steps = 4,
         .min_ratio = 0.2},
        {0.5, 1, 0.6, 0.2});
  check({.name = "cosine_warmup_with_min_lr",
         .learning_rate = 1.0,
         .warmup_steps = 3,
         .total_steps = 5,
         .first_ratio = 0.4},
        {0.4, 0.7, 1, 0.5, 0});
  check({.name = "warmup_stable_decay",
         .learning_rate = 1.0,
         .warmup_steps = 1,
         .total_steps = 5,
         .stable_decay = {.decay_steps = 2}},
        {0, 1, 1, 1, 0.5, 0});
  check(
      {.name = "one_cycle", .learning_rate = 1.0, .warmup_steps = 3, .total_steps = 7, .one_cycle = {.straight = true}},
      {0.04, 0.52, 1, 0.75 + 1e-6, 0.5 + 2e-6, 0.25 + 3e-6, 4e-6, 4e-6});
}

TEST_CASE("one_cycle alone moves the momentum, unless it is told not to") {
  const Schedule moves({.name = "one_cycle", .warmup_steps = 3, .total_steps = 7});
  CHECK(moves.moves_momentum());
  CHECK(moves.momentum(0) == Approx(0.95));
  CHECK(moves.momentum(2) == Approx(0.85));
  CHECK_FALSE(Schedule({.name = "one_cycle", .total_steps = 7, .one_cycle = {.cycle_momentum = false}}).momentum(0));
  CHECK_FALSE(Schedule({.name = "rex", .total_steps = 7}).momentum(0));
}

TEST_CASE("reduce_lr_on_plateau follows what it observes, and goes on from its state") {
  const ScheduleConfig config{.name = "reduce_lr_on_plateau", .learning_rate = 0.5, .plateau = {.patience = 0}};
  Schedule schedule(config);
  CHECK(schedule.observes());
  CHECK_FALSE(Schedule({.name = "constant"}).observes());
  CHECK(schedule(0) == 0.5);
  schedule.observe(3.0);
  CHECK(schedule(1) == 0.5);
  Schedule resumed(config);
  resumed.restore(schedule.state());
  for (Schedule* s : {&schedule, &resumed}) s->observe(3.0);
  CHECK(schedule(2) == 0.05);
  CHECK(resumed(2) == 0.05);
  CHECK(resumed.state() == schedule.state());
}

TEST_CASE("phases that do not fit, and options out of their range") {
  using Catch::Matchers::Contains;
  const auto wsd = [](std::int64_t stable, std::int64_t decay) {
    return Schedule({.name = "warmup_stable_decay",
                     .warmup_steps = 2,
                     .total_steps = 10,
                     .stable_decay = {.decay_steps = decay, .stable_steps = stable}});
  };
  CHECK_NOTHROW(wsd(5, 3));
  CHECK_THROWS_WITH(wsd(6, 3), Contains("[rlalgo.optim.6]") && Contains("2 + 6 + 3 steps"));
  CHECK_THROWS_WITH(wsd(5, 0), Contains("[rlalgo.optim.6]") && Contains("no decay"));
  CHECK_THROWS_WITH(Schedule({.name = "one_cycle", .warmup_steps = 11, .total_steps = 10}),
                    Contains("[rlalgo.optim.3]") && Contains("warmup_steps"));
  CHECK_THROWS_WITH(Schedule({.total_steps = 1, .cycles = 0.0}), Contains("[rlalgo.optim.3]") && Contains("cycles"));
  CHECK_THROWS_WITH(Schedule({.total_steps = 1, .plateau = {.factor = 1.0}}), Contains("plateau.factor"));
  CHECK_THROWS_WITH(Schedule({.total_steps = 1, .one_cycle = {.max_momentum = 1.0}}), Contains("max_momentum"));
  CHECK_THROWS_WITH(Schedule({.total_steps = 1, .timescale = -1}), Contains("timescale"));
}

TEST_CASE("an unknown schedule is refused with the list of names, a ratio outside 0 … 1 too") {
  using Catch::Matchers::Contains;
  CHECK_THROWS_WITH(Schedule({.name = "cosin"}), Contains("[rlalgo.optim.2]") && Contains("found cosin") &&
                                                     Contains("linear, cosine, cosine_with_min_lr, ") &&
                                                     Contains("rex, warmup_stable_decay"));
  CHECK_THROWS_WITH(Schedule({.min_ratio = 1.5}), Contains("[rlalgo.optim.3]") && Contains("min_ratio"));
  CHECK_THROWS_WITH(Schedule({.warmup_steps = -1}), Contains("[rlalgo.optim.3]") && Contains("warmup_steps"));
  try {
    Schedule({.name = "?"});
  } catch (const rlalgo::core::Error& error) {
    CHECK(error.exit_code() == 2);
  }
}
