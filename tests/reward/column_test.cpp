#include <cmath>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/prompts.hpp>

#include <rlalgo/reward/column.hpp>

using namespace rlalgo;
using reward::Json;

TEST_CASE("a column of numbers is a reward; anything else does not apply") {
  const auto function = reward::column("Game", "environment_reward");
  CHECK(function->name() == "Game");
  const std::vector<Json> columns{{{"environment_reward", 1.5}},
                                  {{"environment_reward", nullptr}},
                                  Json::object(),
                                  {{"environment_reward", "2"}},
                                  {{"environment_reward", -3}}};
  const std::vector<Json> nothing(5);
  const std::vector<std::string> texts(5);
  const std::vector<std::span<const std::int32_t>> ids(5);
  const std::vector<double> values = reward::evaluate(*function, {.prompts = rlalgo::support::Prompts(5, {}),
                                                                  .completions = nothing,
                                                                  .texts = texts,
                                                                  .completion_ids = ids,
                                                                  .columns = columns});
  REQUIRE(values.size() == 5);
  CHECK(values[0] == 1.5);
  CHECK(std::isnan(values[1]));
  CHECK(std::isnan(values[2]));
  CHECK(std::isnan(values[3]));
  CHECK(values[4] == -3);
}

TEST_CASE("a column may be the reward of some rows alone") {
  const auto function = reward::column("Game", "environment_reward", {"environment", {"a", "c"}});
  const std::vector<Json> columns{{{"environment_reward", 1.5}, {"environment", "a"}},
                                  {{"environment_reward", 2}, {"environment", "b"}},
                                  {{"environment_reward", 3}, {"environment", "c"}},
                                  {{"environment_reward", 4}, {"environment", 1}},
                                  {{"environment_reward", 5}}};
  const std::vector<Json> nothing(5);
  const std::vector<std::string> texts(5);
  const std::vector<std::span<const std::int32_t>> ids(5);
  const std::vector<double> values = reward::evaluate(*function, {.prompts = rlalgo::support::Prompts(5, {}),
                                                                  .completions = nothing,
                                                                  .texts = texts,
                                                                  .completion_ids = ids,
                                                                  .columns = columns});
  REQUIRE(values.size() == 5);
  CHECK(values[0] == 1.5);
  CHECK(std::isnan(values[1]));
  CHECK(values[2] == 3);
  CHECK(std::isnan(values[3]));
  CHECK(std::isnan(values[4]));
}
