#include <csignal>

#include <support/catch.hpp>

#include <rlalgo/os/interruption.hpp>

using rlalgo::os::Interrupted;
using rlalgo::os::Interruption;
using rlalgo::os::stop_if_interrupted;

TEST_CASE("a stop is told once, asked for between pieces of work, and put off while something is finished") {
  Interruption::clear();
  CHECK_FALSE(Interruption::requested());
  CHECK_NOTHROW(stop_if_interrupted());
  Interruption::request(SIGTERM);
  Interruption::request(SIGINT);  // the first counts
  CHECK(Interruption::signal() == SIGTERM);
  CHECK(Interruption::exit_code() == 143);
  {
    const Interruption::Deferred step;
    const Interruption::Deferred inner;
    CHECK(Interruption::deferred());
    CHECK_NOTHROW(stop_if_interrupted());
  }
  CHECK_FALSE(Interruption::deferred());
  try {
    stop_if_interrupted();
    FAIL("it went on");
  } catch (const Interrupted& stop) {
    Interruption::clear();
    CHECK(stop.exit_code() == 143);  // also when the request is forgotten
    CHECK(stop.room() + std::to_string(stop.number()) == "os8");
  }
  CHECK(Interruption::exit_code() == 130);
}
