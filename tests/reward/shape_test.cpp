#include <cstdint>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/reward/shape.hpp>

using namespace rlalgo::reward;
using Ids = std::vector<std::int32_t>;

TEST_CASE("soft overlong punishment, L 100 and C 20") {
  const SoftOverlong penalty{100, 20};
  CHECK(penalty(0) == 0.0);
  CHECK(penalty(80) == 0.0);
  CHECK(penalty(81) == Approx(-0.05));
  CHECK(penalty(90) == Approx(-0.5));
  CHECK(penalty(100) == -1.0);
  CHECK(penalty(101) == -1.0);
  const SoftOverlong step{100, 0};
  CHECK(step(100) == 0.0);
  CHECK(step(101) == -1.0);
}

TEST_CASE("repetition penalty") {
  CHECK(Repetition{2}(Ids{1, 2, 1, 2, 1, 2}) == Approx(-0.6));
  CHECK(Repetition{3, -0.5}(Ids{1, 2, 1, 2, 1, 2}) == Approx(-0.25));
  CHECK(Repetition{2}(Ids{5, 5, 5, 5, 5}) == Approx(-0.75));
  CHECK(Repetition{3}(Ids{1, 2, 3, 1, 2, 3, 1}) == Approx(-0.4));
  CHECK(Repetition{3}(Ids{}) == 0.0);
  CHECK(Repetition{3}(Ids{1, 2}) == 0.0);
}

TEST_CASE("thinking tags") {
  CHECK(think_format("<think>a</think>b") == 1.0);
  CHECK(think_format("<think></think>") == 1.0);
  CHECK(think_format(" <think>a</think>") == 0.0);
  CHECK(think_format("<think>a<think>b</think>") == 0.0);
  CHECK(think_format("<think>a") == 0.0);
}
