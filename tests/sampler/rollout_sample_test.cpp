#include <rlalgo/sampler/rollout_sample.hpp>

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
  const run::Sample sample = sampler::to_sample(rollout, {"accuracy", "format"});
  CHECK(sample.prompt == "2+2?");
  CHECK(sample.completion == "4");
  CHECK(sample.advantage == -0.5);
  CHECK(sample.cut);
  CHECK(sample.logged == run::Json{{"parsed", 4}});
  REQUIRE(sample.rewards.size() == 2);
  CHECK(sample.rewards[0] == std::pair<std::string, double>{"accuracy", 1.0});
  CHECK(std::isnan(sample.rewards[1].second));
  CHECK(sampler::to_sample(rollout, {}).rewards.empty());
}

TEST_CASE("the prompt of an episode is what the model saw, with what its environment said first") {
  data::Rollout rollout;
  rollout.prompt = "guess";
  rollout.prompt_ids = {7, 8, 9};
  CHECK(sampler::to_sample(rollout, {}, data::ids_as_text).prompt == "guess");
  rollout.own_prompt = true;
  CHECK(sampler::to_sample(rollout, {}, data::ids_as_text).prompt == "7 8 9");
  CHECK(sampler::to_sample(rollout, {}).prompt == "guess");
}

TEST_CASE("a conversation is told in turns, a completion of the model alone is not") {
  data::Rollout rollout;
  rollout.prompt = "guess";
  rollout.completion_ids = {1, 2, 3, 4, 5, 6};
  rollout.loss_mask = {1, 1, 0, 0, 0, 1};
  const run::Sample sample = sampler::to_sample(rollout, {}, data::ids_as_text);
  REQUIRE(sample.turns.size() == 3);
  CHECK(sample.turns[0].model);
  CHECK(sample.turns[0].text == data::ids_as_text(std::vector<data::TokenId>{1, 2}));
  CHECK_FALSE(sample.turns[1].model);
  CHECK(sample.turns[1].text == data::ids_as_text(std::vector<data::TokenId>{3, 4, 5}));
  CHECK(sample.turns[2].model);
  CHECK(sample.turns[2].text == data::ids_as_text(std::vector<data::TokenId>{6}));
  CHECK(sampler::to_sample(rollout, {}).turns.empty());
  rollout.loss_mask = {};
  CHECK(sampler::to_sample(rollout, {}, data::ids_as_text).turns.empty());
  rollout.loss_mask = {0, 0, 0, 0, 0, 0};  // cut off, and masked whole
  CHECK(sampler::to_sample(rollout, {}, data::ids_as_text).turns.empty());
}
