#include <support/catch.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/sampler/geometry.hpp>

using rlalgo::core::UsageError;
using rlalgo::sampler::Geometry;

namespace {
Geometry resolved(std::int64_t b, std::int64_t a, std::int64_t g, std::int64_t s = 0, std::int64_t n = 0,
                  std::int64_t mu = 1) {
  return Geometry::resolve(
      {.micro_batch_size = b, .gradient_accumulation_steps = a, .num_iterations = mu, .num_generations = g}, s, n);
}
}  // namespace

TEST_CASE("the generation batch of 8·3 rows in groups of 6, though 8 is no multiple of 6") {
  const Geometry g = resolved(8, 3, 6);
  CHECK(g.steps_per_generation == 3);
  CHECK(g.completions() == 24);
  CHECK(g.prompts() == 4);
}

TEST_CASE("steps_per_generation from either key") {
  CHECK(resolved(4, 1, 4, 3).steps_per_generation == 3);
  CHECK(resolved(4, 1, 4, 0, 8).steps_per_generation == 2);
  CHECK(resolved(4, 5, 4).steps_per_generation == 5);
}

TEST_CASE("wrong settings are usage errors with a number") {
  const auto number = [](auto&& make) {
    try {
      make();
    } catch (const UsageError& e) {
      CHECK(e.room() == "sampler");
      return e.number();
    }
    return 0;
  };
  CHECK(number([] { resolved(4, 1, 1); }) == 2);
  CHECK(number([] { resolved(0, 1, 2); }) == 2);
  CHECK(number([] { resolved(4, 0, 2); }) == 2);
  CHECK(number([] { resolved(4, 1, 2, 0, 0, 0); }) == 2);
  CHECK(number([] { resolved(4, 1, 2, -1); }) == 2);
  CHECK(number([] { resolved(4, 1, 2, 2, 8); }) == 3);
  CHECK(number([] { resolved(4, 1, 6, 0, 6); }) == 4);
  CHECK(number([] { resolved(4, 1, 2, 0, -4); }) == 4);
  CHECK(number([] { resolved(4, 1, 3); }) == 5);
  CHECK_THROWS_WITH(resolved(4, 1, 3), Catch::Contains("3 generations per prompt in a batch of 4"));
}

TEST_CASE("old log-probs are needed exactly when a generation outlives an optimizer step") {
  CHECK_FALSE(resolved(4, 4, 4, 4).trains_after_update());  // S = a
  CHECK_FALSE(resolved(4, 4, 4, 2).trains_after_update());  // S = a/2
  CHECK(resolved(4, 2, 4, 4).trains_after_update());        // S = 2a
  CHECK(resolved(4, 4, 4, 4, 0, 2).trains_after_update());  // μ = 2
  CHECK(resolved(4, 3, 4, 2).trains_after_update());        // a generation straddles two steps
}

TEST_CASE("lengths of epochs: incomplete generations are dropped, incomplete steps are not") {
  const Geometry g = resolved(4, 2, 4, 3, 0, 2);  // 12 completions = 3 prompts serve 6 micro-steps
  CHECK(g.micro_steps_per_epoch(10) == 18);
  CHECK(g.steps(10, 1.0) == 9);
  CHECK(g.steps(10, 0.3) == 3);  // 2.7
  CHECK(g.epoch(10, 9) == Approx(1.0));
}

TEST_CASE("an evaluation split is one generation and one step, nothing dropped") {
  for (const std::int64_t n : {1, 7, 64, 67, 100})
    for (const std::int64_t copies : {1, 4})
      for (const std::int64_t largest : {1, 8, 16}) {
        const Geometry g = Geometry::evaluation(n, copies, largest);
        CHECK(g.micro_batch_size <= largest);
        CHECK(g.completions() == n * copies);
        CHECK(g.prompts() == n);
        CHECK(g.steps(n, 1.0) == 1);
        CHECK_FALSE(g.trains_after_update());
      }
  CHECK(Geometry::evaluation(64, 4, 16).micro_batch_size == 16);
  CHECK_THROWS_AS(Geometry::evaluation(0, 1, 8), UsageError);
}
