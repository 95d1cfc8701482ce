#include <rlalgo/core/activity.hpp>

#include <string>
#include <thread>
#include <vector>

#include "support/catch.hpp"

using rlalgo::core::Activity;

namespace {

// "evaluating, generating 2/8"
std::string shown() {
  std::string out;
  for (const Activity* a = Activity::innermost(); a != nullptr; a = a->outer())
    out = a->what() + (a->total() > 0 ? " " + std::to_string(a->done()) + "/" + std::to_string(a->total()) : "") +
          (out.empty() ? "" : ", ") + out;
  return out;
}

}  // namespace

TEST_CASE("a listener hears what its thread does, from the outside in") {
  std::vector<std::string> heard;
  {
    const Activity::Listening listening([&] { heard.push_back(shown()); });
    const Activity evaluating("evaluating");
    {
      Activity generating("generating", 8);
      generating.advance();
      Activity::advance_innermost(2);
      std::thread([] {
        Activity other("elsewhere", 3);
        other.advance();
      }).join();
    }
  }
  CHECK(heard == std::vector<std::string>{"evaluating", "evaluating, generating 0/8", "evaluating, generating 1/8",
                                          "evaluating, generating 3/8", "evaluating", ""});
  Activity nobody("unheard", 1);
  nobody.advance();
  CHECK(heard.size() == 6);
  CHECK(Activity::innermost() == &nobody);
}

TEST_CASE("an advance without an activity is nothing, and a listener within another gives it back") {
  Activity::advance_innermost();
  CHECK(Activity::innermost() == nullptr);
  int outer = 0, inner = 0;
  const Activity::Listening first([&] { ++outer; });
  {
    const Activity::Listening second([&] { ++inner; });
    const Activity one("one");
  }
  const Activity two("two");
  CHECK(inner == 2);
  CHECK(outer == 1);
}
