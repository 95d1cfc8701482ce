#include <cmath>

#include <support/bandit.hpp>
#include <support/catch.hpp>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <rlalgo/sampler/rollout_rows.hpp>

using namespace rlalgo;
using sampler::RolloutRows;

namespace {
std::vector<double> values(const at::Tensor& t) {
  const at::Tensor d = t.to(at::kDouble).contiguous();
  return {d.const_data_ptr<double>(), d.const_data_ptr<double>() + d.numel()};
}
}  // namespace

TEST_CASE("a loss that asks for old log-probs always gets them: those of now, detached, where a row has none") {
  data::Rollout fresh, old;
  fresh.completion_ids = {5, 6};
  old.completion_ids = {7};
  const model::Scores scores{at::tensor({-0.1, -0.2, -0.3}, at::kDouble).requires_grad_(true), {}};
  std::vector<data::Rollout*> rows = {&fresh, &old};
  const loss::Needs needs{.old_log_prob = true};
  const loss::Scored all_new = RolloutRows::collate(rows, scores, needs);
  REQUIRE(all_new.old_log_prob.defined());
  CHECK(values(all_new.old_log_prob.detach()) == std::vector<double>{-0.1, -0.2, -0.3});
  CHECK_FALSE(all_new.old_log_prob.requires_grad());
  old.old_log_probs = {-4.0F};  // beside a row without, its ratio stays to the weights that drew it
  const loss::Scored mixed = RolloutRows::collate(rows, scores, needs);
  CHECK(values(mixed.old_log_prob) == std::vector<double>{-0.1, -0.2, -4});
  CHECK_FALSE(mixed.old_log_prob.requires_grad());
}

TEST_CASE("rows become flat columns in order, masks and lengths agree") {
  data::Rollout a, b, empty;
  a.completion_ids = {5, 6};
  a.advantage = 1.5;
  a.old_log_probs = {-1.0F, -2.0F};
  b.completion_ids = {7, 8, 9};
  b.loss_mask = {1, 0, 1};
  b.advantage = -0.5;
  b.old_log_probs = {-3.0F, -4.0F, -5.0F};
  std::vector<data::Rollout*> rows = {&a, &empty, &b};
  const model::Scores scores{at::tensor({-0.1, -0.2, -0.3, -0.4, -0.5}, at::kDouble), {}};
  const loss::Scored scored = RolloutRows::collate(rows, scores, {.old_log_prob = true, .reference_log_prob = true});
  CHECK(values(scored.row) == std::vector<double>{0, 0, 2, 2, 2});
  CHECK(values(scored.mask) == std::vector<double>{1, 1, 1, 0, 1});
  CHECK(values(scored.row_length) == std::vector<double>{2, 0, 2});
  CHECK(values(scored.advantage) == std::vector<double>{1.5, 0, -0.5});
  CHECK(values(scored.old_log_prob) == std::vector<double>{-1, -2, -3, -4, -5});
  CHECK_FALSE(scored.reference_log_prob.defined());  // the rows have none
  CHECK_FALSE(scored.sampling_log_prob.defined());   // not needed

  loss::Counts counts;
  RolloutRows::count(rows, {}, counts);
  CHECK(counts.rows == 3);
  CHECK(counts.tokens == 4);
  CHECK(RolloutRows::tokens(b) == 3);
  CHECK(RolloutRows::idle(empty));
  CHECK_FALSE(RolloutRows::idle(b));
}

TEST_CASE("the rows of samples: an episode's in turn, with its rewards and its advantage") {
  std::vector<data::Rollout> samples(3);
  samples[0].advantage = 0.5;
  samples[1].advantage = -2.0;
  samples[1].rewards = {3.0};
  samples[1].logged = {{"note", 1}};
  samples[1].further.resize(2);
  samples[1].further[0].completion_ids = {5, 6};
  samples[1].further[1].completion_ids = {7};
  samples[1].further[1].loss_mask = {0};
  std::vector<data::Rollout*> all = {&samples[0], &samples[1], &samples[2]};
  const std::vector<data::Rollout*> rows = RolloutRows::rows_of(all);
  auto& further = samples[1].further;
  CHECK(rows == std::vector<data::Rollout*>{&samples[0], &samples[1], &further[0], &further[1], &samples[2]});
  for (const data::Rollout& row : further) {
    CHECK(row.advantage == -2.0);
    CHECK(row.rewards == std::vector<double>{3.0});
    CHECK(row.logged == data::Json{{"note", 1}});
  }
  loss::Counts counts;
  RolloutRows::count(std::vector<const data::Rollout*>(rows.begin(), rows.end()), {}, counts);
  CHECK(counts.rows == 5);
  CHECK(counts.tokens == 2);
  CHECK_FALSE(RolloutRows::idle(further[0]));
}

TEST_CASE("answers stand behind all completions, at temperature 1 and without mask, where the loss asks for them") {
  data::Rollout a, b;
  a.prompt_ids = b.prompt_ids = {4, 5};
  a.completion_ids = {6};
  b.completion_ids = {7, 8};
  a.answer_ids = {9, 10, 11};
  a.old_log_probs = {-1.0F};
  b.old_log_probs = {-2.0F, -3.0F};
  std::vector<data::Rollout*> rows = {&a, &b};
  CHECK(RolloutRows::tree(rows).targets() == 3);
  CHECK(RolloutRows::tree(rows).untempered == 0);
  const loss::Needs needs{.old_log_prob = true, .answer_likelihood = true};
  const model::TokenTree tree = RolloutRows::tree(rows, needs);
  CHECK(tree.target == std::vector<std::int64_t>{6, 7, 8, 9, 10, 11});
  CHECK(tree.untempered == 3);
  const model::Scores scores{at::tensor({-.1, -.2, -.3, -.4, -.5, -.6}, at::kDouble), {}};
  const loss::Scored scored = RolloutRows::collate(rows, scores, needs);
  CHECK(values(scored.mask) == std::vector<double>{1, 1, 1, 0, 0, 0});
  CHECK(values(scored.likelihood_mask) == std::vector<double>{0, 0, 0, 1, 1, 1});
  CHECK(values(scored.row) == std::vector<double>{0, 1, 1, 0, 0, 0});
  CHECK(values(scored.row_length) == std::vector<double>{1, 2});
  CHECK(values(scored.old_log_prob) == std::vector<double>{-1, -2, -3, 0, 0, 0});
  loss::Counts counts;
  RolloutRows::count(rows, needs, counts);
  CHECK(counts.rows == 2);
  CHECK(counts.tokens == 3);
  CHECK(counts.likelihood_tokens == 3);
  a.answer_mask = {0, 1, 1};
  CHECK(values(RolloutRows::collate(rows, scores, needs).likelihood_mask) == std::vector<double>{0, 0, 0, 0, 1, 1});
  loss::Counts fewer;
  RolloutRows::count(rows, needs, fewer);
  CHECK(fewer.likelihood_tokens == 2);
  CHECK_FALSE(RolloutRows::idle(a));  // of advantage 0, but it brings an answer
  CHECK(RolloutRows::idle(b));
  b.old_log_probs.clear();
  RolloutRows::remember(rows, scores.log_prob);
  CHECK(b.old_log_probs == std::vector<float>{-.2F, -.3F});
}

TEST_CASE("old log-probs are remembered once, others are stored whenever they are scored") {
  data::Rollout a, b;
  a.completion_ids = {1};
  b.completion_ids = {2, 3};
  b.old_log_probs = {-7.0F, -8.0F};
  std::vector<data::Rollout*> rows = {&a, &b};
  const at::Tensor log_prob = at::tensor({-0.5, -1.5, -2.5}, at::kDouble);
  RolloutRows::remember(rows, log_prob);
  CHECK(a.old_log_probs == std::vector<float>{-0.5F});
  CHECK(b.old_log_probs == std::vector<float>{-7.0F, -8.0F});
  RolloutRows::store(rows, log_prob, &data::Rollout::reference_log_probs);
  CHECK(b.reference_log_probs == std::vector<float>{-1.5F, -2.5F});
}

TEST_CASE("scoring in chunks fills every row with the same values as in one") {
  std::vector<data::Rollout> rollouts(5);
  std::vector<data::Rollout*> rows;
  for (std::size_t i = 0; i < rollouts.size(); ++i) {
    rollouts[i].prompt_ids = {0};
    rollouts[i].completion_ids = {static_cast<std::int32_t>(i % 3), 1};
    rows.push_back(&rollouts[i]);
  }
  rlalgo::support::Bandit bandit(3, at::kDouble);
  {
    const at::NoGradGuard guard;
    bandit.logits.copy_(at::tensor({0.1, 0.7, -0.4}, at::kDouble));
  }
  RolloutRows::score(bandit, rows, 2, 1.0, &data::Rollout::old_log_probs);
  RolloutRows::score(bandit, rows, 100, 1.0, &data::Rollout::reference_log_probs);
  for (const data::Rollout* r : rows) {
    REQUIRE(r->old_log_probs.size() == 2);
    CHECK(r->old_log_probs == r->reference_log_probs);
  }
  CHECK(rows[0]->old_log_probs[0] != rows[1]->old_log_probs[0]);
}

TEST_CASE("a row of other weights is never given ratio 1 in silence") {
  std::vector<data::Rollout> rollouts(4);
  std::vector<data::Rollout*> rows;
  for (data::Rollout& r : rollouts) {
    r.prompt_ids = {0};
    r.completion_ids = {1, 2};
    rows.push_back(&r);
  }
  rollouts[0].weights_version = 7;  // of the weights of now
  rollouts[1].weights_version = 6;  // earlier, as its generator reported it
  rollouts[1].sampling_log_probs = {-0.25F, -0.5F};
  rollouts[2].weights_version = 6;  // earlier, known
  rollouts[2].old_log_probs = {-1.0F, -2.0F};
  rollouts[3].weights_version = 6;  // earlier, and nobody knows
  rlalgo::support::Bandit policy(4, at::kDouble);
  sampler::Warnings warnings;
  const sampler::Scorers scorers{.policy = policy, .version = 7};
  RolloutRows::complete(rows, scorers, {}, warnings);
  CHECK(rollouts[1].old_log_probs.empty());  // nobody reads them
  RolloutRows::complete(rows, scorers, {.old_log_prob = true}, warnings);
  CHECK(rollouts[0].old_log_probs.empty());
  CHECK(rollouts[1].old_log_probs == std::vector<float>{-0.25F, -0.5F});
  CHECK(rollouts[2].old_log_probs == std::vector<float>{-1.0F, -2.0F});
  REQUIRE(rollouts[3].old_log_probs.size() == 2);
  CHECK(rollouts[3].old_log_probs[0] == Approx(-std::log(4.0)));
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Catch::Contains("1 completions of weights version 6 (now 7)"));
}

TEST_CASE("rows that lack a reference are scored by it") {
  data::Rollout known, lacking;
  known.prompt_ids = lacking.prompt_ids = {0};
  known.completion_ids = lacking.completion_ids = {1};
  known.reference_log_probs = {-9.0F};
  std::vector<data::Rollout*> rows = {&known, &lacking};
  rlalgo::support::Bandit policy(4), reference(2, at::kDouble);
  sampler::Warnings warnings;
  RolloutRows::complete(rows, {policy, &reference}, {.reference_log_prob = true}, warnings);
  CHECK(known.reference_log_probs == std::vector<float>{-9.0F});
  CHECK(lacking.reference_log_probs.at(0) == Approx(-std::log(2.0)));
}

TEST_CASE("where the loss corrects for the generator, rows of other weights keep the policy's own old log-probs") {
  rlalgo::support::Bandit bandit(4);
  data::Rollout row;
  row.completion_ids = {1, 2};
  row.sampling_log_probs = {-0.5F, -0.25F};
  row.weights_version = 3;
  std::vector<data::Rollout*> rows = {&row};
  sampler::Warnings warnings;
  RolloutRows::complete(rows, {.policy = bandit, .version = 5, .corrects_sampling = true}, {.old_log_prob = true},
                        warnings);
  CHECK(row.old_log_probs.empty());
  CHECK(warnings.empty());
  RolloutRows::complete(rows, {.policy = bandit, .version = 5}, {.old_log_prob = true}, warnings);
  CHECK(row.old_log_probs == row.sampling_log_probs);
}
