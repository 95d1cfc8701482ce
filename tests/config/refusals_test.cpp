#include <rlalgo/config/refusals.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <string>

using namespace rlalgo;
using config::Refusals;

namespace {

void refuse(Refusals& all, int number, const std::string& what, const std::string& where) {
  all.add(number, {.what = what, .where = where, .remedy = "mend it"});
}
std::string raised(const Refusals& all) {
  try {
    all.raise();
  } catch (const core::UsageError& error) {
    return std::string(error.what());
  }
  return "nothing";
}

}  // namespace

TEST_CASE("nothing refused raises nothing, one refusal is raised as it is") {
  Refusals all("c.yaml");
  CHECK(raised(all) == "nothing");
  CHECK(all.judge([] {}));
  CHECK_FALSE(all.judge_own([] { core::raise_usage("data", 3, {.what = "a file is missing", .where = "x"}); }));
  CHECK(raised(all) == "[rlalgo.data.3] a file is missing: at x");
  CHECK(support::exit_code_of([&] { all.raise(); }) == 2);
}

TEST_CASE("what is no usage error is nobody's refusal") {
  Refusals all("c.yaml");
  CHECK_THROWS_AS(all.judge([] { core::raise("data", 3, {.what = "broken"}); }), core::Error);
  CHECK(all.empty());
}

TEST_CASE("what is found by what a key names is kept whatever its class, with the place of the key") {
  Refusals all("c.yaml");
  CHECK(all.judge_found("c.yaml:2", [] {}));
  CHECK_FALSE(all.judge_found("c.yaml:7", [] { core::raise("data", 1, {.what = "no such file"}); }));
  const std::string one = support::raised_by([&] { all.raise(); });
  CHECK(support::lacks(one, {"data.1: ", "no such file (c.yaml:7)"}) == "");
  CHECK(support::exit_code_of([&] { all.raise(); }) == 1);  // as it is
  CHECK_FALSE(all.judge_found("c.yaml:3",
                              [] { core::raise_usage("config", 20, {.what = "no such model", .where = "c.yaml:3"}); }));
  CHECK_FALSE(all.judge_found("c.yaml:3",
                              [] { core::raise_usage("config", 20, {.what = "no such model", .where = "c.yaml:3"}); }));
  CHECK(raised(all) ==
        "[rlalgo.config.45] 2 problems, by line\n"
        "  [rlalgo.config.20] no such model: at c.yaml:3\n"
        "  [rlalgo.data.1] no such file (c.yaml:7)");
  CHECK_THROWS_AS(all.judge_found("c.yaml:3", [] { os::raise_interrupted("os", 8, {.what = "stop"}); }),
                  os::Interrupted);
}

TEST_CASE("several refusals are one error, by line; those without a line come last, in order") {
  Refusals all("c.yaml");
  refuse(all, 7, "learning_rate is missing", "c.yaml");
  refuse(all, 6, "the value of b is out of range", "c.yaml:12");
  refuse(all, 4, "unknown key a", "c.yaml:3");
  refuse(all, 5, "the value of c has the wrong type", "command line --c");
  refuse(all, 8, "d and e are both set", "c.yaml:9 and c.yaml:2");
  CHECK(raised(all) ==
        "[rlalgo.config.45] 5 problems, by line\n"
        "  [rlalgo.config.4] unknown key a: at c.yaml:3; mend it\n"
        "  [rlalgo.config.8] d and e are both set: at c.yaml:9 and c.yaml:2; mend it\n"
        "  [rlalgo.config.6] the value of b is out of range: at c.yaml:12; mend it\n"
        "  [rlalgo.config.7] learning_rate is missing: at c.yaml; mend it\n"
        "  [rlalgo.config.5] the value of c has the wrong type: at command line --c; mend it");
  CHECK(support::exit_code_of([&] { all.raise(); }) == 2);
}

TEST_CASE("the same is said once, and beyond a hundred the number of the rest") {
  Refusals all("c.yaml");
  for (int i = 0; i < 3; ++i) refuse(all, 4, "unknown key a", "c.yaml:3");
  CHECK(raised(all) == "[rlalgo.config.4] unknown key a: at c.yaml:3; mend it");
  for (int i = 0; i < 120; ++i) refuse(all, 4, "unknown key k" + std::to_string(i), "c.yaml:" + std::to_string(i + 4));
  CHECK_THAT(raised(all), Catch::Contains("121 problems") && Catch::EndsWith("\n  and 21 more"));
}

TEST_CASE("what names a key whose value was not taken follows from that, and is not said") {
  Refusals all("c.yaml");
  refuse(all, 5, "the value of trl.num_generations has the wrong type", "c.yaml:3");
  all.distrust("trl.num_generations");
  refuse(all, 11, "the batch does not divide: a multiple of trl.num_generations (8)", "c.yaml:4");
  refuse(all, 11, "num_generations does not fit", "c.yaml:4");
  CHECK(raised(all) == "[rlalgo.config.5] the value of trl.num_generations has the wrong type: at c.yaml:3; mend it");
  // Other keys that hold the name, and common words, are other names.
  refuse(all, 6, "trl.num_generations_eval is out of range", "c.yaml:5");
  CHECK_THAT(raised(all), Catch::Contains("2 problems"));
  all.distrust("trl.beta");
  refuse(all, 6, "the value of rl_beta is out of range", "c.yaml:6");
  refuse(all, 6, "beta is below 0", "c.yaml:7");
  CHECK_THAT(raised(all), Catch::Contains("4 problems"));
  all.distrust("beta");
  refuse(all, 6, "the value of ebft.beta is out of range", "c.yaml:8");
  CHECK_THAT(raised(all), Catch::Contains("5 problems"));
}

TEST_CASE(
    "a key that is refused by itself is said whatever it names, and stays when another name turns out to be meant") {
  Refusals all("c.yaml");
  all.distrust("learning_rate");
  all.add_own(10, {.what = "this build has no embedding_lr", .where = "c.yaml:3", .remedy = "one learning_rate"});
  refuse(all, 7, "lora_r is missing", "c.yaml:4");
  CHECK_THAT(raised(all), Catch::Contains("2 problems"));
  all.forget("lora_r");
  all.forget("embedding_lr");
  CHECK(raised(all) == "[rlalgo.config.10] this build has no embedding_lr: at c.yaml:3; one learning_rate");
}

TEST_CASE("a section that could not be read excuses all of its keys") {
  Refusals all("c.yaml");
  refuse(all, 5, "the value of trl has the wrong type", "c.yaml:3");
  all.distrust("trl.");
  refuse(all, 7, "trl.reward_funcs is missing", "c.yaml");
  CHECK_THAT(raised(all), Catch::StartsWith("[rlalgo.config.5]"));
  CHECK(all.distrusts("trl."));
  CHECK_FALSE(all.distrusts("trl"));
}
