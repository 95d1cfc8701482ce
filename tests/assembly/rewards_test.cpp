#include <support/catch.hpp>
#include <support/prompts.hpp>
#include <support/scratch.hpp>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/assembly/rewards.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;

TEST_CASE("rewards come with their weights, Python modules are looked for in the search paths") {
  std::string name = (fs::temp_directory_path() / "rlalgo_online_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  std::ofstream(folder / "my_rewards.py") << "def one(completions, **kwargs):\n    return [1.0] * len(completions)\n";
  assembly::RewardsConfig run{.names = {"builtin.gsm8k_accuracy", "my_rewards.one"}, .weights = {2.0, 0.5}};
  run.functions.pool.python.search_paths = {folder};
  const auto rewards = assembly::weighted_rewards(run);
  REQUIRE(rewards.size() == 2);
  CHECK(rewards[0].function->name() == "gsm8k_accuracy");
  CHECK(rewards[0].weight == 2.0);
  CHECK(rewards[1].function->name() == "one");
  CHECK(rewards[1].weight == 0.5);
  fs::remove_all(folder);
}

TEST_CASE("reward models, TRL's names with parameters, and what happens when a reward fails") {
  const std::string models = std::string(rlalgo::support::test_dir) + "/golden/reward/models";
  assembly::RewardsConfig run;
  run.names = {"think_format_reward", models + "/llama/", "get_soft_overlong_punishment"};
  run.functions.kwargs = {{"get_soft_overlong_punishment", {{"max_completion_len", 2}, {"soft_punish_cache", 1}}}};
  run.functions.on_failure = reward::OnFailure::zero;
  run.functions.max_completion_length = 33;
  const auto rewards = assembly::weighted_rewards(run);
  REQUIRE(rewards.size() == 3);
  CHECK(rewards[0].function->name() == "think_format_reward");
  CHECK(rewards[1].function->name() == "llama");
  CHECK(rewards[2].function->name() == "soft_overlong_punishment_reward");

  const std::vector<std::string> texts = {"<think>a</think>4"};
  const rlalgo::support::Prompts prompts = {"What is 2+2? "};
  const std::vector<data::Json> completions = {texts[0]}, columns = {data::Json::object()};
  const std::vector<std::int32_t> tokens(3, 1);
  const std::vector<std::span<const std::int32_t>> ids = {tokens};
  reward::RewardLog log;
  const reward::RewardCall call{.prompts = prompts,
                                .completions = completions,
                                .texts = texts,
                                .completion_ids = ids,
                                .columns = columns,
                                .log = &log};
  CHECK(reward::evaluate(*rewards[0].function, call) == std::vector<double>{1.0});
  CHECK(std::isfinite(reward::evaluate(*rewards[1].function, call).at(0)));
  CHECK(reward::evaluate(*rewards[2].function, call) == std::vector<double>{-1.0});
  CHECK(log.own_metrics.size() == 3);
  CHECK(log.own_metrics.at(1).first == "rewards/llama/failed");

  run.names = {"no/such-model"};
  run.functions.kwargs = data::Json::object();
  CHECK_THROWS_WITH(assembly::weighted_rewards(run), Catch::Contains("[rlalgo.config.20]"));
}

TEST_CASE("a name with a slash or a config.json is a model, a dotted one is a function") {
  const support::ScratchDirectory scratch;
  (void)scratch.write("judge/config.json", "{}");
  CHECK(assembly::names_reward_model("org/judge"));
  CHECK(assembly::names_reward_model((scratch.path() / "judge").string()));
  CHECK_FALSE(assembly::names_reward_model("rewards.correct"));
}
