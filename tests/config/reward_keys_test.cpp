#include <support/catch.hpp>

#include <rlalgo/config/reward_keys.hpp>

TEST_CASE("defaults of rewards are TRL's") {
  const rlalgo::config::RewardConfig r;
  CHECK(r.reward_weights.empty());
  CHECK(r.scale_rewards == "group");
  CHECK(r.multi_objective_aggregation == "sum_then_normalize");
  CHECK_FALSE(r.reward_clip_range.has_value());
  CHECK(r.reward_num_workers == 1);
  CHECK(r.reward_timeout == 60.0);
  CHECK(r.reward_max_retries == 1);
  CHECK(r.reward_on_failure == "error");
}
