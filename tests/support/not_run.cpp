#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include <support/catch.hpp>
#include <support/not_run.hpp>

#include <cstddef>
#include <iostream>
#include <string>
#include <type_traits>
#include <vector>

namespace {

// Of the test case that runs.
std::vector<std::string>& reasons() {
  static std::vector<std::string> all;
  return all;
}

// A passed assertion, so that a case without one is an error (-w NoAssertions) only where it gives no reason.
void remember(const std::string& why) {
  reasons().push_back(why);
  SUCCEED("not run: " << why);
}

#if __has_include(<catch2/catch_all.hpp>)
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

// Prints `not run CASE: why` where nothing else was checked, and `partly run CASE: why` where something was.
struct Listener : ListenerBase {
  using ListenerBase::ListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    ListenerBase::testCaseStarting(info);
    reasons().clear();
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ListenerBase::testCaseEnded(stats);
    if (stats.totals.assertions.failed > 0) return;
    const bool all = stats.totals.assertions.total() <= reasons().size();
    std::string last;
    for (const std::string& why : reasons()) {
      if (why == last || (all && !last.empty())) continue;
      std::cout << (all ? "not run " : "partly run ") << name_of(stats.testInfo) << ": " << why << std::endl;
      last = why;
    }
  }

  template <class Info>
  static std::string name_of(const Info& info) {
    if constexpr (std::is_pointer_v<Info>)
      return info->name;
    else
      return info.name;
  }
};
CATCH_REGISTER_LISTENER(Listener)

}  // namespace

namespace rlalgo::support {

void not_run(const std::string& why) {
  remember(why);
  throw Catch::TestFailureException();  // Catch2 ends the case and counts no failure but those it was told of
}

void not_run_in_part(const std::string& what_and_why) { remember(what_and_why); }

}  // namespace rlalgo::support
