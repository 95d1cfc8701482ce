#include <support/catch.hpp>

#include <rlalgo/os/open_files.hpp>

using namespace rlalgo;

TEST_CASE("the limit of open files is raised as far as it may be, and never lowered") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit low = before;
  low.rlim_cur = 100;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  CHECK(os::raise_open_files(50) == 100);
  const std::uint64_t raised = os::raise_open_files(200);
  CHECK(raised == (before.rlim_max == RLIM_INFINITY ? 200 : std::min<rlim_t>(before.rlim_max, 200)));
  rlimit now{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &now) == 0);
  CHECK(now.rlim_cur == raised);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}
