#include <support/catch.hpp>

#include <thread>

#include <rlalgo/os/clock.hpp>

using namespace rlalgo::os;

TEST_CASE("a deadline counts down and then has passed") {
  const Deadline far(60.0);
  CHECK_FALSE(far.passed());
  CHECK(far.milliseconds_left() > 50000);
  const Deadline near(0.0);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(near.passed());
  CHECK(near.milliseconds_left() == 0);
}

TEST_CASE("a stopwatch never runs backwards") {
  const Stopwatch watch;
  const double first = watch.seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(watch.seconds() > first);
}
