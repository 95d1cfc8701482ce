#include <rlalgo/sampler/rollout_sample.hpp>

#include <cmath>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("a row of an episode becomes a sample with one named reward per function") {
  data::Episode episode;
  data::Row& row = episode.first();
  const data::EpisodeRow shown(episode, row);
  episode.prompt = "2+2?";
  row.text = "4";
  episode.rewards = {1.0, std::nan("")};
  episode.advantage = -0.5;
  row.finish = data::Finish::length;
  episode.logged = {{"parsed", 4}};
  const run::Sample sample = sampler::to_sample(shown, {"accuracy", "format"});
  CHECK(sample.prompt == "2+2?");
  CHECK(sample.completion == "4");
  CHECK(sample.advantage == -0.5);
  CHECK(sample.cut);
  CHECK(sample.logged == run::Json{{"parsed", 4}});
  REQUIRE(sample.rewards.size() == 2);
  CHECK(sample.rewards[0] == std::pair<std::string, double>{"accuracy", 1.0});
  CHECK(std::isnan(sample.rewards[1].second));
  CHECK(sampler::to_sample(shown, {}).rewards.empty());
}

TEST_CASE("the prompt of an episode is what the model saw, with what its environment said first") {
  data::Episode episode;
  data::Row& row = episode.first();
  const data::EpisodeRow shown(episode, row);
  episode.prompt = "guess";
  row.prompt_ids = {7, 8, 9};
  CHECK(sampler::to_sample(shown, {}, data::ids_as_text).prompt == "guess");
  row.own_prompt = true;
  CHECK(sampler::to_sample(shown, {}, data::ids_as_text).prompt == "7 8 9");
  CHECK(sampler::to_sample(shown, {}).prompt == "guess");
}

TEST_CASE("a conversation is told in turns, a completion of the model alone is not") {
  data::Episode episode;
  data::Row& row = episode.first();
  const data::EpisodeRow shown(episode, row);
  episode.prompt = "guess";
  row.completion_ids = {1, 2, 3, 4, 5, 6};
  row.loss_mask = {1, 1, 0, 0, 0, 1};
  const run::Sample sample = sampler::to_sample(shown, {}, data::ids_as_text);
  REQUIRE(sample.turns.size() == 3);
  CHECK(sample.turns[0].model);
  CHECK(sample.turns[0].text == data::ids_as_text(std::vector<data::TokenId>{1, 2}));
  CHECK_FALSE(sample.turns[1].model);
  CHECK(sample.turns[1].text == data::ids_as_text(std::vector<data::TokenId>{3, 4, 5}));
  CHECK(sample.turns[2].model);
  CHECK(sample.turns[2].text == data::ids_as_text(std::vector<data::TokenId>{6}));
  CHECK(sampler::to_sample(shown, {}).turns.empty());
  row.loss_mask = {};
  CHECK(sampler::to_sample(shown, {}, data::ids_as_text).turns.empty());
  row.loss_mask = {0, 0, 0, 0, 0, 0};  // cut off, and masked whole
  CHECK(sampler::to_sample(shown, {}, data::ids_as_text).turns.empty());
}
