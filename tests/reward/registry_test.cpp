#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/prompts.hpp>

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

TEST_CASE("TRL's rewards answer to TRL's names") {
  for (const char* name : {"accuracy_reward", "reasoning_accuracy_reward", "think_format_reward",
                           "cosine_scaled_reward", "soft_overlong_punishment_reward", "repetition_penalty_reward"}) {
    CHECK(reward::make_builtin(name, {})->name() == name);
    CHECK(reward::make_builtin(std::string("trl.rewards.") + name, {})->name() == name);
    CHECK(reward::make_builtin(std::string("builtin.") + name, {})->name() == name);
  }
  CHECK(reward::make_builtin("get_cosine_scaled_reward", {})->name() == "cosine_scaled_reward");
  CHECK(reward::make_builtin("trl.rewards.get_soft_overlong_punishment", {})->name() ==
        "soft_overlong_punishment_reward");
  CHECK(reward::make_builtin("get_repetition_penalty_reward", {})->name() == "repetition_penalty_reward");
  CHECK_FALSE(reward::is_builtin("trl.rewards.length_reward"));
}

TEST_CASE("parameters by TRL's names") {
  const std::vector<std::string> texts = {"\\boxed{42}"};
  const rlalgo::support::Prompts prompts = {"p"};
  const std::vector<reward::Json> completions = {texts[0]}, columns = {{{"solution", "42"}}};
  const std::vector<std::int32_t> ids(90, 1);
  const std::vector<std::span<const std::int32_t>> views = {ids};
  const reward::RewardCall call{
      .prompts = prompts, .completions = completions, .texts = texts, .completion_ids = views, .columns = columns};
  const auto value = [&](const char* name, reward::Json arguments) {
    return reward::evaluate(*reward::make_builtin(name, {.max_completion_length = 100, .arguments = arguments}),
                            call)[0];
  };
  CHECK(value("cosine_scaled_reward", {{"max_len", 180}}) == Approx(0.75));
  CHECK(value("cosine_scaled_reward", {{"max_len", 90}, {"min_value_correct", 0.25}}) == Approx(0.25));
  CHECK(value("soft_overlong_punishment_reward", {{"max_completion_len", 95}, {"soft_punish_cache", 10}}) ==
        Approx(-0.5));
  CHECK(value("repetition_penalty_reward", {{"ngram_size", 90}}) == 0.0);
  CHECK(value("repetition_penalty_reward", {{"max_penalty", -0.5}}) == Approx(-0.5 * (1 - 1.0 / 88)));
  CHECK(value("reasoning_accuracy_reward", {{"reasoning_delimiters", {"<end>", "\\"}}}) == 0.0);
  CHECK_THROWS_WITH(value("cosine_scaled_reward", {{"max_length", 5}}),
                    Catch::Contains("[rlalgo.reward.6]") && Catch::Contains("did you mean max_len?"));
  CHECK_THROWS_WITH(value("think_format_reward", {{"x", 5}}),
                    Catch::Contains("[rlalgo.reward.6]") && Catch::Contains("it has no parameters"));
  CHECK_THROWS_WITH(value("cosine_scaled_reward", {{"max_len", 0}}), Catch::Contains("[rlalgo.reward.7]"));
  CHECK_THROWS_WITH(value("cosine_scaled_reward", {{"max_len", "long"}}), Catch::Contains("[rlalgo.reward.7]"));
  CHECK_THROWS_WITH(value("repetition_penalty_reward", {{"max_penalty", 0.5}}), Catch::Contains("[rlalgo.reward.7]"));
}

TEST_CASE("every built-in can be made and called, under its own unique name") {
  const std::vector<std::string> texts = {"<answer>42</answer>"};
  const rlalgo::support::Prompts prompts = {"p"};
  const std::vector<reward::Json> completions = {texts[0]}, columns = {{{"answer", "42"}, {"solution", "42"}}};
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
