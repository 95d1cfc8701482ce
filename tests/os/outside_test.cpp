#include <support/scratch.hpp>

#include <cstdlib>
#include <string>

#include <rlalgo/os/outside.hpp>

using rlalgo::os::Outside;
using rlalgo::os::OutsideInEnvironment;
using rlalgo::support::ScopedVariable;

namespace {
std::string of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "(unset)" : value;
}
std::string local(std::time_t time) {
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%H %Z", &parts);
  return text;
}
}  // namespace

TEST_CASE("time, zone, language and host are taken as they are found") {
  const ScopedVariable time("RLALGO_START_TIME", "1000000000"), zone("TZ", "Asia/Tokyo"), words("LC_TIME", "C");
  const Outside found = Outside::now();
  CHECK(found.time == 1'000'000'000);
  CHECK(found.zone == "Asia/Tokyo");
  CHECK(found.language.at("LC_TIME") == "C");
  CHECK_FALSE(found.host.empty());
}

TEST_CASE("the clock is asked where no time is set, and what is no time is refused") {
  {
    const ScopedVariable time("RLALGO_START_TIME", "");
    CHECK(Outside::now().time > 1'700'000'000);
  }
  for (const char* wrong : {"today", "-5", "0", "123456789012345"}) {
    const ScopedVariable time("RLALGO_START_TIME", wrong);
    CHECK_THROWS_WITH(Outside::now(), Catch::Contains("[rlalgo.os.11]") && Catch::Contains(wrong));
  }
}

TEST_CASE("what was taken is in the environment while the guard lives, and what was there comes back") {
  const ScopedVariable zone("TZ", "UTC"), words("LC_TIME", "en_US.UTF-8"), seed("PYTHONHASHSEED", "7");
  const Outside there{.time = 1'000'000'000, .zone = "JST-9", .host = "elsewhere", .language = {{"LANG", "C"}}};
  {
    const OutsideInEnvironment environment(there);
    CHECK(of("RLALGO_START_TIME") == "1000000000");
    CHECK(of("RLALGO_START_HOST") == "elsewhere");
    CHECK(of("TZ") == "JST-9");
    CHECK(of("LANG") == "C");
    CHECK(of("LC_TIME") == "(unset)");
    CHECK(of("PYTHONHASHSEED") == "7");
    CHECK(local(1'000'000'000) == "10 JST");
    CHECK(Outside::now() == there);
  }
  CHECK(of("TZ") == "UTC");
  CHECK(of("LC_TIME") == "en_US.UTF-8");
  CHECK(local(1'000'000'000) == "01 UTC");
}
