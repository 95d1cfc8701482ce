#include <type_traits>

#include <support/catch.hpp>

#include <rlalgo/data/rollout.hpp>

using namespace rlalgo::data;

TEST_CASE("JSON keeps the order of keys, which chat templates and saved files depend on") {
  const Json row = Json::parse(R"({"z": 1, "a": 2, "m": {"y": 0, "b": 0}})");
  CHECK(row.dump() == R"({"z":1,"a":2,"m":{"y":0,"b":0}})");
}

TEST_CASE("a fresh episode has one row with a full loss mask, no advantage and no rewards") {
  const Episode episode;
  CHECK(episode.advantage == 0.0);
  CHECK(episode.rewards.empty());
  REQUIRE(episode.rows.size() == 1);
  CHECK(episode.first().loss_mask.empty());
  CHECK(episode.first().finish == Finish::stop);
}

TEST_CASE("a row knows its episode, and the answer stands behind the first one alone") {
  Episode episode;
  episode.rows.resize(2);
  EpisodeRow first(episode, episode.rows[0]), second(episode, episode.rows[1]);
  CHECK(&first.episode() == &episode);
  CHECK_FALSE(first.has_answer());
  episode.answer_ids = {4};
  CHECK(first.has_answer());
  CHECK_FALSE(second.has_answer());
  second->completion_ids = {7, 8};
  CHECK(episode.rows[1].completion_ids.size() == 2);
  const EpisodeRow& seen = second;
  static_assert(std::is_same_v<decltype(*seen), const Row&>, "who sees a row as const changes none of it");
  CHECK(seen->completion_ids[1] == 8);
}
