#include <rlalgo/os/processors.hpp>

#include <sched.h>

#include <string>
#include <thread>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

TEST_CASE("a quota is processors per period, and what is none grants all") {
  CHECK(os::detail::quota_of("150000 100000\n") == 1.5);
  CHECK(os::detail::quota_of("50000\n 100000\n") == 0.5);
  for (const char* none : {"max 100000", "-1 100000", "", " ", "100000", "0 100000", "100000 0", "many 1"})
    CHECK(os::detail::quota_of(none) == os::detail::no_quota);
}

TEST_CASE("the least quota of a group and those above it counts, in both hierarchies") {
  const support::ScratchDirectory root;
  root.write("cpu.max", "max 100000\n");
  root.write("pod/cpu.max", "200000 100000\n");
  root.write("pod/box/cpu.max", "300000 100000\n");
  const auto quota = [&](const std::string& membership) { return os::detail::cgroup_quota(membership, root.path()); };
  CHECK(quota("0::/pod/box\n") == 2.0);
  CHECK(quota("0::/pod\n") == 2.0);
  CHECK(quota("0::/\n") == os::detail::no_quota);
  CHECK(quota("0::/not/here\n") == os::detail::no_quota);
  CHECK(quota("0::/../elsewhere\n") == os::detail::no_quota);
  CHECK(quota("nonsense\n\n:\n") == os::detail::no_quota);
  root.write("cpu,cpuacct/box/cpu.cfs_quota_us", "150000\n");
  root.write("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  root.write("cpu/cpu.cfs_quota_us", "-1\n");
  root.write("cpu/cpu.cfs_period_us", "100000\n");
  CHECK(quota("9:memory:/box\n3:cpu,cpuacct:/box\n0::/pod\n") == 1.5);
  CHECK(quota("3:cpuset,cpu:/box\n") == 1.5);
  CHECK(quota("3:cpuset:/box\n") == os::detail::no_quota);
}

TEST_CASE("a thread that is held to one processor may use one") {
  CHECK(os::usable_processors() >= 1);
  CHECK(os::usable_processors() <= static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  int held = 0;
  bool done = false;
  std::thread([&] {
    cpu_set_t allowed, one;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
    done = ::sched_setaffinity(0, sizeof one, &one) == 0;
    held = os::usable_processors();
  }).join();
  REQUIRE(done);
  CHECK(held == 1);
}
