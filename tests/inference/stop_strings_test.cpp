#include <support/catch.hpp>

#include <random>
#include <string>

#include <rlalgo/inference/stop_strings.hpp>

using rlalgo::inference::StopStrings;

TEST_CASE("what could become a stop string is held back until it is decided") {
  StopStrings stops({"###", "END"});
  CHECK(stops.push("ab#") == "ab");
  CHECK(stops.push("#c") == "##c");
  CHECK(stops.push("EN").empty());
  CHECK(stops.push("E") == "EN");
  CHECK_FALSE(stops.stopped());
  CHECK(stops.push("ND more").empty());
  CHECK(stops.stopped() == "END");
  CHECK(stops.push("further").empty());
  CHECK(stops.finish().empty());
}

TEST_CASE("the first to begin counts, the longest of those that begin together") {
  StopStrings first({"later", "so"});
  CHECK(first.push("see so later") == "see ");
  CHECK(first.stopped() == "so");
  StopStrings longest({"ab", "abc"});
  CHECK(longest.push("xabc") == "x");
  CHECK(longest.stopped() == "abc");
}

TEST_CASE("text that ends without one is all shown; nothing stops before it may") {
  StopStrings stops({"stop", ""});
  CHECK(stops.push("a st") == "a ");
  CHECK(stops.finish() == "st");
  StopStrings later({"stop"});
  CHECK(later.push("st").empty());
  CHECK(later.push("op it", false) == "stop it");
  CHECK(later.push("stop").empty());
  CHECK(later.stopped() == "stop");
}

TEST_CASE("the pieces do not matter") {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += static_cast<char>('a' + random() % 2);
    const std::vector<std::string> strings = {"abba", "bbbb"};
    StopStrings stops(strings);
    std::string shown;
    for (std::size_t at = 0; at < text.size() && !stops.stopped();) {
      const std::size_t n = 1 + random() % 3;
      shown += stops.push(text.substr(at, n));
      at += n;
    }
    shown += stops.finish();
    std::size_t end = std::string::npos;
    for (const std::string& s : strings) end = std::min(end, text.find(s));
    CHECK(shown == text.substr(0, end));
  }
}
