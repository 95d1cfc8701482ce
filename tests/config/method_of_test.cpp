#include <support/scratch.hpp>

#include <string>
#include <vector>

#include <rlalgo/config/method_of.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

TEST_CASE("the defaults of RunConfig name rows") {
  RunConfig c;
  c.rl = "grpo";
  CHECK(objective_of(c).name == "dapo");
  CHECK(level_of(c) == LevelPart::token);
  CHECK(estimator_of(c).part == EstimatorPart::group_relative);
  CHECK(aggregation_of(c) == AggregationPart::sum_then_normalize);
  CHECK(idle_rows_are_free(c));
  c.trl.loss_type = "bnpo";
  CHECK_FALSE(idle_rows_are_free(c));
}

TEST_CASE("what a recipe fixes, no key changes") {
  RunConfig c;
  c.rl = "rloo";
  c.trl.importance_sampling_level = "token";
  c.trl.advantage_estimator = "pass_through";
  CHECK(level_of(c) == LevelPart::completion);
  CHECK(estimator_of(c).part == EstimatorPart::leave_one_out);
  CHECK(aggregation_of(c) == AggregationPart::sum_minus_kl);
  c.rl = "gdpo";
  CHECK(level_of(c) == LevelPart::token);
  CHECK(estimator_of(c).part == EstimatorPart::pass_through);
  CHECK(aggregation_of(c) == AggregationPart::normalize_then_sum);
}

TEST_CASE("the losses of a preference recipe") {
  RunConfig c;
  c.rl = "kto";
  CHECK(needs_mismatched(c));
  CHECK(needs_reference(c));
  CHECK(is_preference(c));
  c.preference.loss_type = "apo_zero_unpaired";
  CHECK_FALSE(needs_mismatched(c));
  c.rl = "dpo";
  REQUIRE(pair_objectives_of(c).size() == 1);
  CHECK(pair_objectives_of(c).front().part == PairPart::sigmoid);
  c.preference.dpo_loss_type = {"hinge", "sft"};
  CHECK(pair_objectives_of(c).back().part == PairPart::sft);
}

TEST_CASE("a name without a row is an error that lists the names") {
  RunConfig c;
  c.rl = "ppo";
  CHECK(lacks(raised_by([&] { (void)recipe_of(c); }), {"config.9: ", "ppo", "grpo", "cpo or ebft"}) == "");
  c.rl = "grpo";
  c.trl.loss_type = "ppo";
  CHECK(lacks(raised_by([&] { (void)objective_of(c); }), {"config.22: ", "luspo or vespo"}) == "");
  c.trl.importance_sampling_level = "word";
  CHECK(lacks(raised_by([&] { (void)level_of(c); }), {"config.22: ", "sequence_token"}) == "");
  c.trl.advantage_estimator = "gae";
  CHECK(lacks(raised_by([&] { (void)estimator_of(c); }), {"config.22: ", "leave_one_out"}) == "");
  c.trl.multi_objective_aggregation = "sum";
  CHECK(lacks(raised_by([&] { (void)aggregation_of(c); }), {"config.22: ", "normalize_then_sum"}) == "");
  c.rl = "dpo";
  c.preference.dpo_loss_type = {"sigmod"};
  CHECK(lacks(raised_by([&] { (void)pair_objectives_of(c); }), {"config.23: ", "sigmoid"}) == "");
  c.rl = "kto";
  c.preference.loss_type = "bco";
  CHECK(lacks(raised_by([&] { (void)preference_loss_of(c); }), {"config.23: ", "apo_zero_unpaired"}) == "");
}
