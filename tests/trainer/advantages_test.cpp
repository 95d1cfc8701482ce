#include <support/catch.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/aggregation/sum_minus_kl.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/trainer/advantages.hpp>
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
  trainer::assign_advantages(aggregation::SumThenNormalize(), advantage::GroupRelative<>(), *g, metrics);
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

TEST_CASE("fresh generations are settled: advantages, references, and old log-probs of what is trained later") {
  const auto g = generation({1, 0, 0, 1}, 4);
  sampler::RolloutBatch batch;
  batch.fresh = {g};
  batch.parts = {{&g->rollouts[0], &g->rollouts[1]}};
  rlalgo::support::Bandit policy(3, at::kDouble), reference(3, at::kDouble);
  const sampler::Scorers scorers{policy, &reference};
  core::Metrics metrics;
  trainer::settle(batch, aggregation::SumThenNormalize(), advantage::GroupRelative<>(), scorers,
                  {.reference = true, .old = true}, metrics);
  CHECK(g->rollouts[0].advantage > 0);
  for (const data::Rollout& r : g->rollouts) CHECK(r.reference_log_probs.size() == 2);
  CHECK(g->rollouts[1].old_log_probs.empty());
  CHECK(g->rollouts[2].old_log_probs.size() == 2);

  // A reward that contains the divergence needs both of every row first.
  trainer::settle(batch, aggregation::SumMinusKl({.beta = 0.5}), advantage::LeaveOneOut(), scorers, {}, metrics);
  CHECK(metrics.value("kl") == 0.0);
  CHECK(g->rollouts[1].old_log_probs.size() == 2);
}
