#include <cmath>
#include <limits>
#include <span>

#include <support/catch.hpp>

#include <ATen/core/grad_mode.h>

#include <rlalgo/advantage/batch_whitened.hpp>
#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/advantage/pass_through.hpp>
#include <rlalgo/aggregation/normalize_then_sum.hpp>
#include <rlalgo/aggregation/sum_minus_kl.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/sampler/rollout_rows.hpp>
#include <rlalgo/trainer/advantages.hpp>
#include <support/bandit.hpp>

using namespace rlalgo;

namespace {
std::shared_ptr<sampler::Generation> generation(const std::vector<double>& rewards, std::size_t group) {
  auto g = std::make_shared<sampler::Generation>();
  g->episodes.resize(rewards.size());
  g->groups = core::Groups::uniform(rewards.size(), group);
  g->rewards = core::RewardTable({"r"}, {}, rewards.size());
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    g->rewards(i, 0) = rewards[i];
    g->episodes[i].first().prompt_ids = {0};
    g->episodes[i].first().completion_ids = {static_cast<std::int32_t>(i % 3), 1};
  }
  return g;
}

// As the stage completes the rows of a micro-batch.
void complete(const std::vector<data::Episode*>& part, const sampler::Scorers& scorers, sampler::Warnings& warnings) {
  std::vector<data::EpisodeRow> rows = sampler::RolloutRows::rows_of(part);
  std::vector<data::EpisodeRow*> views;
  for (data::EpisodeRow& row : rows) views.push_back(&row);
  sampler::RolloutRows::complete(views, scorers, {.old_log_prob = true}, warnings);
}
}  // namespace

TEST_CASE("advantages reach the episodes, and constant groups are counted") {
  const auto g = generation({1, 0, 0, 1, 2, 2, 2, 2}, 4);
  core::Metrics metrics;
  trainer::assign_advantages(aggregation::SumThenNormalize(), advantage::GroupRelative<>(), g, metrics);
  CHECK(g->episodes[0].advantage == Approx(0.8658754298));  // online-RL golden V1, group scale
  CHECK(g->episodes[1].advantage == Approx(-0.8658754298));
  CHECK(g->episodes[5].advantage == 0.0);
  CHECK(metrics.value("frac_reward_zero_std") == 0.5);
}

TEST_CASE("rows outside the micro-batches of this step are those trained later") {
  const auto g = generation({1, 0, 0, 1}, 4);
  sampler::RolloutBatch batch;
  batch.fresh = {g};
  batch.parts = {{&g->episodes[0], &g->episodes[1]}};
  CHECK(trainer::trained_later(batch) == std::vector<data::Episode*>{&g->episodes[2], &g->episodes[3]});
  CHECK(trainer::all_rows(batch.fresh).size() == 4);
  g->episodes[1].rows.resize(3);
  CHECK(trainer::all_rows(batch.fresh)[3] == &g->episodes[1].rows[2]);
}

TEST_CASE("fresh generations are settled: advantages, references, and old log-probs of what is trained later") {
  const auto g = generation({1, 0, 0, 1}, 4);
  sampler::RolloutBatch batch;
  batch.fresh = {g};
  batch.parts = {{&g->episodes[0], &g->episodes[1]}};
  rlalgo::support::Bandit policy(3, at::kDouble), reference(3, at::kDouble);
  const sampler::Scorers scorers{policy, &reference};
  core::Metrics metrics;
  trainer::settle(batch, aggregation::SumThenNormalize(), advantage::GroupRelative<>(), scorers,
                  {.reference = true, .old = true}, metrics);
  CHECK(g->episodes[0].advantage > 0);
  for (const data::Episode& r : g->episodes) CHECK(r.first().reference_log_probs.size() == 2);
  CHECK(g->episodes[1].first().old_log_probs.empty());
  CHECK(g->episodes[2].first().old_log_probs.size() == 2);

  // A reward that contains the divergence needs both of every row first.
  trainer::settle(batch, aggregation::SumMinusKl({.beta = 0.5}), advantage::LeaveOneOut(), scorers, {}, metrics);
  CHECK(metrics.value("kl") == 0.0);
  CHECK(g->episodes[1].first().old_log_probs.size() == 2);
}

TEST_CASE(
    "an episode of several rows is one sample of its group; all its rows get log-probs, and its divergence is theirs") {
  const auto plain = generation({1, 0, 0, 1}, 4), g = generation({1, 0, 0, 1}, 4);
  g->episodes[1].rows.resize(3);
  g->episodes[3].rows.resize(2);
  for (const std::size_t i : {1U, 3U})
    for (data::Row& row : std::span(g->episodes[i].rows).subspan(1)) {
      row.prompt_ids = {0, 1};
      row.completion_ids = {2, 0, 1};
      row.loss_mask = {1, 0, 1};
    }
  sampler::RolloutBatch batch;
  batch.fresh = {g};
  batch.parts = {{&g->episodes[0], &g->episodes[1]}};
  rlalgo::support::Bandit policy(3, at::kDouble), reference(3, at::kDouble);
  {
    const at::NoGradGuard off;
    policy.logits[2] += 1.0;
  }
  const sampler::Scorers scorers{policy, &reference};
  core::Metrics metrics;
  trainer::settle(batch, aggregation::SumThenNormalize(), advantage::GroupRelative<>(), scorers,
                  {.rows_per_pass = 2, .reference = true, .old = true}, metrics);
  trainer::assign_advantages(aggregation::SumThenNormalize(), advantage::GroupRelative<>(), plain, metrics);
  for (std::size_t i = 0; i < 4; ++i) CHECK(g->episodes[i].advantage == plain->episodes[i].advantage);
  for (const std::size_t i : {1U, 3U})
    for (const data::Row& row : std::span(g->episodes[i].rows).subspan(1)) {
      CHECK(row.reference_log_probs.size() == 3);
      CHECK(row.old_log_probs.size() == (i == 3 ? 3 : 0));  // trained later
    }
  core::Metrics kl;
  trainer::settle(batch, aggregation::SumMinusKl({.beta = 0.5}), advantage::LeaveOneOut(), scorers, {}, kl);
  const auto apart = [&](const data::Row& r, std::size_t t) { return r.old_log_probs[t] - r.reference_log_probs[t]; };
  const std::vector<data::Row>& rows = g->episodes[1].rows;
  double expected = apart(rows[0], 0) + apart(rows[0], 1);
  for (const std::size_t k : {1U, 2U}) expected += apart(rows[k], 0) + apart(rows[k], 2);
  core::Metrics again;
  CHECK(trainer::divergences(g->episodes, again)[1] == Approx(expected));
  CHECK(std::abs(expected) > 0.1);
  CHECK(again.value("kl") == kl.value("kl"));
}

TEST_CASE(
    "replayed rows have the old log-probs that they bring, else the policy's; rows of older weights their "
    "generator's") {
  // Groups of two rows: 0 of the weights of now, 1 of older ones, 2 and 3 replayed, with and without their generator's.
  // Each group has one row that is trained now and one that is trained later.
  for (const bool corrects : {false, true})
    for (const bool divergence : {false, true}) {
      const auto g = generation({1, 0, 0, 1, 1, 0, 0, 1}, 2);
      g->prompts = {0, 1, 2, 3};
      g->replayed = {0, 0, 1, 1};
      sampler::RolloutBatch batch;
      batch.fresh = {g};
      batch.parts.resize(1);
      for (std::size_t i = 0; i < 8; ++i) {
        data::Episode& r = g->episodes[i];
        r.first().weights_version = i < 2 ? 5 : 3;
        r.first().sampling_log_probs = {-7.0F, -8.0F};
        r.first().loss_mask = {0, 1};  // a tool's token, then the model's
        if (i / 2 == 2) r.first().old_log_probs = r.first().sampling_log_probs;
        if (i % 2 == 0) batch.parts[0].push_back(&r);
      }
      rlalgo::support::Bandit policy(3, at::kDouble), reference(3, at::kDouble);
      const sampler::Scorers scorers{
          .policy = policy, .reference = &reference, .version = 5, .corrects_sampling = corrects};
      core::Metrics metrics;
      sampler::Warnings warnings;
      const auto settle = [&](const auto& aggregation) {
        trainer::settle(batch, aggregation, advantage::LeaveOneOut(), scorers, {.reference = true, .old = true},
                        metrics);
      };
      divergence ? settle(aggregation::SumMinusKl({.beta = 0.5})) : settle(aggregation::SumThenNormalize());
      complete(batch.parts[0], scorers, warnings);
      const std::vector<float> none, generators = {-7.0F, -8.0F};
      const auto old = [&](std::size_t row) { return g->episodes[row].first().old_log_probs; };
      const auto policys = [&](std::size_t row) {
        return old(row).size() == 2 && old(row)[1] == Approx(-std::log(3.0));
      };
      INFO("corrects " << corrects << ", divergence " << divergence);
      CHECK((divergence ? policys(0) : old(0) == none));  // trained now by the weights that drew it
      CHECK(policys(1));
      if (corrects) {
        CHECK((divergence ? policys(2) : old(2) == none));
        CHECK(policys(3));
      } else {
        CHECK(old(2) == generators);
        CHECK(old(3) == none);  // taken when its turn comes
        complete({&g->episodes[3]}, {.policy = policy, .version = 6}, warnings);
        CHECK(old(3) == generators);
      }
      CHECK(old(4) == generators);
      CHECK(old(5) == generators);
      if (corrects && !divergence)
        CHECK(old(6) == none);  // the ratio begins at 1
      else
        CHECK(policys(6));
      CHECK(policys(7));
      CHECK(warnings.empty());
    }
}

TEST_CASE("numbers that no advantage can be made of are named, whatever the estimator") {
  const double infinity = std::numeric_limits<double>::infinity();
  core::Metrics metrics;
  const auto assign = [&](const auto& aggregation, const auto& estimator, sampler::Generation& g) {
    const std::shared_ptr<sampler::Generation> unowned(std::shared_ptr<void>(), &g);
    trainer::assign_advantages(aggregation, estimator, unowned, metrics);
  };
  for (const double bad : {infinity, -infinity, 1e308}) {
    const auto g = generation({1, 0, bad, 1}, 4);
    const auto named = Catch::Contains("at r, completion 3");
    CHECK_THROWS_WITH(assign(aggregation::SumThenNormalize(), advantage::GroupRelative<>(), *g), named);
    CHECK_THROWS_WITH(assign(aggregation::SumThenNormalize(), advantage::GroupRelative<advantage::Scale::batch>(), *g),
                      named);
    CHECK_THROWS_WITH(assign(aggregation::SumThenNormalize(), advantage::LeaveOneOut({.normalize = true}), *g), named);
    CHECK_THROWS_WITH(assign(aggregation::SumThenNormalize(), advantage::BatchWhitened(), *g), named);
    CHECK_THROWS_WITH(assign(aggregation::SumThenNormalize(), advantage::PassThrough(), *g), named);
    CHECK_THROWS_WITH(assign(aggregation::NormalizeThenSum(), advantage::GroupRelative<>(), *g), named);
    CHECK_THROWS_WITH(assign(aggregation::SumMinusKl({.beta = 0}), advantage::LeaveOneOut(), *g), named);
  }
  const auto weighed = [&](double weight) {
    const auto g = generation({1, 0, 2e10, 1}, 4);
    g->rewards = core::RewardTable({"r"}, {weight}, 4);
    for (std::size_t i = 0; i < 4; ++i) g->rewards(i, 0) = i == 2 ? 2e10 : 1;
    assign(aggregation::SumThenNormalize(), advantage::GroupRelative<>(), *g);
  };
  CHECK_NOTHROW(weighed(1e20));
  CHECK_THROWS_WITH(weighed(1e30), Catch::Contains("weighted sum") && Catch::Contains("completion 3"));
  CHECK_THROWS_WITH(weighed(std::nan("")), Catch::Contains("[rlalgo.trainer.32]") && Catch::Contains("weight"));

  const auto g = generation({1, 0}, 2);
  for (data::Episode& r : g->episodes) r.first().old_log_probs = {-1, -1}, r.first().reference_log_probs = {-1, -1};
  CHECK_NOTHROW(assign(aggregation::SumMinusKl({.beta = 0.5}), advantage::LeaveOneOut(), *g));
  g->episodes[1].first().reference_log_probs[0] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH(assign(aggregation::SumMinusKl({.beta = 0.5}), advantage::LeaveOneOut(), *g),
                    Catch::Contains("divergence") && Catch::Contains("completion 2"));
}

TEST_CASE("the largest rewards there may be are computed right") {
  const auto g = generation({3.4e38, 0, 0, -3.4e38}, 4);
  core::Metrics metrics;
  trainer::assign_advantages(aggregation::SumThenNormalize(), advantage::GroupRelative<>(), g, metrics);
  CHECK(g->episodes[0].advantage == Approx(1 / std::sqrt(2.0 / 3)));  // 1 / std₁(1, 0, 0, -1)
  CHECK(g->episodes[1].advantage == 0.0);
}
