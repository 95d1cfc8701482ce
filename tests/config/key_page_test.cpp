#include <support/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <rlalgo/config/key_page.hpp>

using namespace rlalgo::config;

TEST_CASE("what a row says") {
  double epsilon = 0.2;
  std::string word = "a";
  std::vector<std::string> list;
  const Keys rows = {key("trl.epsilon", epsilon, "how far").within(above(0).to(1)).of_loss("grpo dapo"),
                     key("trl.eps", epsilon, "").same_as("trl.epsilon"),
                     key("trl.word", word, "a | b").one_of({"a", "b"}),
                     key("trl.list", list, "names").of_recipe("grpo").free(resume::wait)};
  CHECK(default_of(rows[0]) == "0.2");
  CHECK(values_of(rows[0]) == "more than 0, at most 1");
  CHECK(meaning_of(rows[0], rows) == "how far; also `trl.eps`; `loss_type`: grpo, dapo");
  CHECK_FALSE(is_documented(rows[1]));
  CHECK(default_of(rows[3]) == "–");
  CHECK(values_of(rows[3]) == "list of texts");
  CHECK(markdown_table({"x", "trl.", {rows[2]}}) ==
        "| key (default) | values | meaning |\n|---|---|---|\n| `word` (a) | a, b | a \\| b |\n");
  CHECK(plain_text(rows[3], rows) ==
        "trl.list: list of texts\n    names; `rl`: grpo\n    a resumed run may change it: how long something is "
        "waited for\n");
}

TEST_CASE("the methods that read a key") {
  CHECK(methods_reading("learning_rate").empty());  // all of them
  CHECK(methods_reading("trl.epsilon") == "all that generate (grpo, gdpo, rloo, ebft)");
  CHECK(methods_reading("dpo_use_weighting") == "dpo, ipo");
  CHECK(methods_reading("lr_scheduler_kwargs.power").empty());
  const Key& row =
      *std::find_if(every_key().begin(), every_key().end(), [](const Key& k) { return k.name == "trl.epsilon"; });
  CHECK(plain_text(row, every_key())
            .starts_with("trl.epsilon: number, more than 0, at most 1 (default: 0.2)\n    how far"));
}
