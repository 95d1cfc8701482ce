#include <support/scratch.hpp>

#include <cmath>
#include <limits>

#include <rlalgo/config/key.hpp>

using namespace rlalgo::config;

TEST_CASE("ranges hold at their ends as they say, and only finite numbers") {
  CHECK_FALSE(above(0).to(1).holds(0.0));
  CHECK(above(0).to(1).holds(1.0));
  CHECK(at_least(0).below(1).holds(0.0));
  CHECK_FALSE(at_least(0).below(1).holds(1.0));
  for (const Range& range : {any_number, at_least(0), above(0), fraction, count(1)}) {
    CHECK_FALSE(range.holds(std::nan("")));
    CHECK_FALSE(range.holds(std::numeric_limits<double>::infinity()));
    CHECK_FALSE(range.holds(-std::numeric_limits<double>::infinity()));
  }
}

TEST_CASE("a range says what it holds") {
  CHECK(any_number.text() == "a finite number");
  CHECK(above(0).text() == "more than 0");
  CHECK(above(0).to(1).meaning("1 = off").text() == "more than 0, at most 1 (1 = off)");
  CHECK(at_least(0).below(1).text() == "from 0 up to, not including, 1");
  CHECK(fraction.text() == "from 0 to 1");
  CHECK(seconds.text() == "more than 0 seconds");
  CHECK(count(1).text(0) == "1 or more");
  CHECK(count(1).text(2e9) == "at most 1000000000");
}

TEST_CASE("a word of a list is a whole one") {
  CHECK(among("grpo", "grpo gdpo"));
  CHECK(among("gdpo", "grpo gdpo"));
  CHECK_FALSE(among("grpo", "dr_grpo gdpo"));
  CHECK_FALSE(among("dr", "dr_grpo"));
  CHECK_FALSE(among("grpo", ""));
  CHECK(listed_words("grpo gdpo") == "grpo, gdpo");
}

TEST_CASE("a row reads into its member, and says its value") {
  std::optional<double> member;
  const Key row = key("trl.delta", member, "cap");
  CHECK(row.target.json(row.target.at).is_null());
  row.target.read(row.target.at, make_scalar("2.5", false, {}), "trl.delta");
  CHECK(member == 2.5);
  CHECK(row.target.json(row.target.at) == 2.5);
  CHECK(row.target.form == "number");
  CHECK(row.idle_because().empty());
  bool on = false;
  const Key gated = key("x", member, "").when(where([&on] { return on; }, "it is off"));
  CHECK(gated.idle_because() == "it is off");
  on = true;
  CHECK(gated.idle_because().empty());
}

TEST_CASE("a path is every text of its member") {
  std::vector<std::string> several = {"a", "b"};
  std::optional<std::string> none;
  const auto count_of = [](const Key& row) {
    int out = 0;
    row.target.each_text(row.target.at, [&](std::string& text) {
      text = "~";
      ++out;
    });
    return out;
  };
  CHECK(count_of(key("x", several, "")) == 2);
  CHECK(several == std::vector<std::string>{"~", "~"});
  CHECK(count_of(key("y", none, "")) == 0);
}
