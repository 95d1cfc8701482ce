#include <rlalgo/trainer/rollout_sample.hpp>

#include <cmath>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("a rollout becomes a sample with one named reward per function") {
  data::Rollout rollout;
  rollout.prompt = "2+2?";
  rollout.text = "4";
  rollout.rewards = {1.0, std::nan("")};
  rollout.advantage = -0.5;
  rollout.finish = data::Finish::length;
  rollout.logged = {{"parsed", 4}};
  const run::Sample sample = trainer::to_sample(rollout, {"accuracy", "format"});
  CHECK(sample.prompt == "2+2?");
  CHECK(sample.completion == "4");
  CHECK(sample.advantage == -0.5);
  CHECK(sample.cut);
  CHECK(sample.logged == run::Json{{"parsed", 4}});
  REQUIRE(sample.rewards.size() == 2);
  CHECK(sample.rewards[0] == std::pair<std::string, double>{"accuracy", 1.0});
  CHECK(std::isnan(sample.rewards[1].second));
  CHECK(trainer::to_sample(rollout, {}).rewards.empty());
}
