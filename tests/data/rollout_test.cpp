#include <support/catch.hpp>

#include <rlalgo/data/rollout.hpp>

using namespace rlalgo::data;

TEST_CASE("JSON keeps the order of keys, which chat templates and saved files depend on") {
  const Json row = Json::parse(R"({"z": 1, "a": 2, "m": {"y": 0, "b": 0}})");
  CHECK(row.dump() == R"({"z":1,"a":2,"m":{"y":0,"b":0}})");
}

TEST_CASE("a fresh rollout has no advantage, no rewards and a full loss mask") {
  const Rollout rollout;
  CHECK(rollout.advantage == 0.0);
  CHECK(rollout.rewards.empty());
  CHECK(rollout.loss_mask.empty());
  CHECK(rollout.finish == Finish::stop);
}
