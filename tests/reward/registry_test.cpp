#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/reward/registry.hpp>

using namespace rlalgo;

TEST_CASE("built-ins answer to the module names of the examples") {
  for (const char* path :
       {"builtin.correctness_reward_func", "rewards.int_reward_func", "gsm8k_grpo.xmlcount_reward_func"})
    CHECK(reward::is_builtin(path));
  for (const char* path : {"correctness_reward_func", "other.int_reward_func", "builtin.nothing", ""})
    CHECK_FALSE(reward::is_builtin(path));
  CHECK(reward::make_builtin("rewards.gsm8k_format", {})->name() == "gsm8k_format");
}

TEST_CASE("every built-in can be made and called, under its own unique name") {
  const std::vector<std::string> texts = {"<answer>42</answer>"};
  const std::vector<reward::Json> prompts = {"p"}, completions = {texts[0]}, columns = {{{"answer", "42"}}};
  const std::vector<std::int32_t> ids(90, 1);
  const std::vector<std::span<const std::int32_t>> views = {ids};
  const reward::RewardCall call{
      .prompts = prompts, .completions = completions, .texts = texts, .completion_ids = views, .columns = columns};
  std::set<std::string> names;
  for (const reward::Builtin& b : reward::builtins()) {
    const auto function = b.make({.max_completion_length = 100});
    CHECK(function->name() == b.name);
    CHECK(names.insert(b.name).second);
    const auto values = reward::evaluate(*function, call);
    if (b.name == "correctness_reward_func") CHECK(values[0] == 2.0);
    if (b.name == "soft_overlong_punishment_reward") CHECK(values[0] == Approx(-0.5));
    if (b.name == "repetition_penalty_reward") CHECK(values[0] == Approx(-(1 - 1.0 / 88)));
  }
}

TEST_CASE("an unknown name lists what there is") {
  try {
    (void)reward::make_builtin("builtin.corectness", {});
    FAIL("no error");
  } catch (const core::UsageError& e) {
    CHECK_THAT(e.what(), Catch::Contains("[rlalgo.reward.3]") && Catch::Contains("found builtin.corectness") &&
                             Catch::Contains("builtin.correctness_reward_func"));
  }
}
