#include <support/catch.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/trainer/prepare.hpp>
#include <support/bandit.hpp>

using namespace rlalgo;

namespace {
std::shared_ptr<sampler::Generation> generation(const std::vector<double>& rewards, std::size_t group) {
  auto g = std::make_shared<sampler::Generation>();
  g->rollouts.resize(rewards.size());
  g->groups = core::Groups::uniform(rewards.size(), group);
  g->rewards = core::RewardTable({"r"}, {}, rewards.size());
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    g->rewards(i, 0) = rewards[i];
    g->rollouts[i].prompt_ids = {0};
    g->rollouts[i].completion_ids = {static_cast<std::int32_t>(i % 3), 1};
  }
  return g;
}
}  // namespace

TEST_CASE("advantages reach the rollouts, and constant groups are counted") {
  const auto g = generation({1, 0, 0, 1, 2, 2, 2, 2}, 4);
  core::Metrics metrics;
  trainer::assign_advantages(aggregation::SumThenNormalize(), advantage::GroupRelative(), *g, metrics);
  CHECK(g->rollouts[0].advantage == Approx(0.8658754298));  // online-RL golden V1, group scale
  CHECK(g->rollouts[1].advantage == Approx(-0.8658754298));
  CHECK(g->rollouts[5].advantage == 0.0);
  CHECK(metrics.value("frac_reward_zero_std") == 0.5);
}

TEST_CASE("rows outside the micro-batches of this step are those trained later") {
  const auto g = generation({1, 0, 0, 1}, 4);
  sampler::RolloutBatch batch;
  batch.fresh = {g};
  batch.parts = {{&g->rollouts[0], &g->rollouts[1]}};
  CHECK(trainer::trained_later(batch) == std::vector<data::Rollout*>{&g->rollouts[2], &g->rollouts[3]});
  CHECK(trainer::all_rollouts(batch).size() == 4);
}

TEST_CASE("scoring in chunks fills every row with the same values as in one") {
  const auto g = generation({1, 0, 0, 1, 1}, 5);
  rlalgo::support::Bandit bandit(3, at::kDouble);
  {
    const at::NoGradGuard guard;
    bandit.logits.copy_(at::tensor({0.1, 0.7, -0.4}, at::kDouble));
  }
  sampler::RolloutBatch batch;
  batch.fresh = {g};
  const auto rows = trainer::all_rollouts(batch);
  trainer::score_columns(
      bandit, rows, 2, 1.0, [](data::Rollout & r) -> auto& { return r.old_log_probs; });
  trainer::score_columns(
      bandit, rows, 100, 1.0, [](data::Rollout & r) -> auto& { return r.reference_log_probs; });
  for (const data::Rollout* r : rows) {
    REQUIRE(r->old_log_probs.size() == 2);
    CHECK(r->old_log_probs == r->reference_log_probs);
  }
  CHECK(rows[0]->old_log_probs[0] != rows[1]->old_log_probs[0]);
}

TEST_CASE("rows of advantage 0 are left out of their micro-batches; one stays when all are") {
  std::vector<data::Rollout> rows(5);
  rows[1].advantage = 0.5;
  rows[3].advantage = -1e-300;
  rows[4].advantage = -0.0;
  const std::vector<std::vector<data::Rollout*>> parts{{&rows[0], &rows[1]}, {&rows[2]}, {&rows[3], &rows[4]}};
  core::Metrics metrics;
  const auto left = trainer::without_idle_rows(parts, metrics);
  CHECK(left == std::vector<std::vector<data::Rollout*>>{{&rows[1]}, {}, {&rows[3]}});
  CHECK(metrics.value("skipped_zero_adv_rows") == Approx(0.6));
  rows[1].advantage = rows[3].advantage = 0.0;
  core::Metrics none;
  CHECK(trainer::without_idle_rows(parts, none) == std::vector<std::vector<data::Rollout*>>{{&rows[0]}, {}, {}});
  CHECK(none.value("skipped_zero_adv_rows") == 1.0);
}
