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

// The rows of some episodes, as a loss sees them.
struct Seen {
  explicit Seen(const std::vector<data::Episode*>& of) : rows(RolloutRows::rows_of(of)) {
    for (data::EpisodeRow& row : rows) views.push_back(&row), tokens.push_back(&*row);
  }
  std::vector<data::EpisodeRow> rows;
  std::vector<data::EpisodeRow*> views;
  std::vector<data::Row*> tokens;
};
}  // namespace

TEST_CASE("a loss that asks for old log-probs always gets them: those of now, detached, where a row has none") {
  data::Episode fresh, old;
  fresh.first().completion_ids = {5, 6};
  old.first().completion_ids = {7};
  const model::Scores scores{at::tensor({-0.1, -0.2, -0.3}, at::kDouble).requires_grad_(true), {}};
  const Seen seen({&fresh, &old});
  const loss::Needs needs{.old_log_prob = true};
  const loss::Scored all_new = RolloutRows::collate(seen.views, scores, needs);
  REQUIRE(all_new.old_log_prob.defined());
  CHECK(values(all_new.old_log_prob.detach()) == std::vector<double>{-0.1, -0.2, -0.3});
  CHECK_FALSE(all_new.old_log_prob.requires_grad());
  old.first().old_log_probs = {-4.0F};  // beside a row without, its ratio stays to the weights that drew it
  const loss::Scored mixed = RolloutRows::collate(seen.views, scores, needs);
  CHECK(values(mixed.old_log_prob) == std::vector<double>{-0.1, -0.2, -4});
  CHECK_FALSE(mixed.old_log_prob.requires_grad());
}

TEST_CASE("rows become flat columns in order, masks and lengths agree") {
  data::Episode a, b, empty;
  a.first().completion_ids = {5, 6};
  a.advantage = 1.5;
  a.first().old_log_probs = {-1.0F, -2.0F};
  b.first().completion_ids = {7, 8, 9};
  b.first().loss_mask = {1, 0, 1};
  b.advantage = -0.5;
  b.first().old_log_probs = {-3.0F, -4.0F, -5.0F};
  const Seen seen({&a, &empty, &b});
  const model::Scores scores{at::tensor({-0.1, -0.2, -0.3, -0.5}, at::kDouble), {}};
  const loss::Scored scored =
      RolloutRows::collate(seen.views, scores, {.old_log_prob = true, .reference_log_prob = true});
  CHECK(values(scored.row) == std::vector<double>{0, 0, 2, 2});
  CHECK(values(scored.mask) == std::vector<double>{1, 1, 1, 1});
  CHECK(values(scored.row_length) == std::vector<double>{2, 0, 2});
  CHECK(values(scored.advantage) == std::vector<double>{1.5, 0, -0.5});
  CHECK(values(scored.old_log_prob) == std::vector<double>{-1, -2, -3, -5});
  CHECK_FALSE(scored.reference_log_prob.defined());  // the rows have none
  CHECK_FALSE(scored.sampling_log_prob.defined());   // not needed

  loss::Counts counts;
  RolloutRows::count(seen.views, {}, counts);
  CHECK(counts.rows == 3);
  CHECK(counts.tokens == 4);
  CHECK(RolloutRows::tokens(seen.rows[2]) == 3);
  CHECK(RolloutRows::idle(seen.rows[1]));
  CHECK_FALSE(RolloutRows::idle(seen.rows[2]));
}

TEST_CASE("tokens without loss are no targets, and their log-probs are nobody's; the last one of a row stays") {
  data::Episode tools, cut, plain;
  for (data::Episode* e : {&tools, &cut, &plain}) e->first().prompt_ids = {1, 2};
  tools.first().completion_ids = {5, 6, 7, 8, 9};
  tools.first().loss_mask = {1, 0, 0, 1, 1};
  cut.first().completion_ids = {10, 11};  // cut off, and masked whole
  cut.first().loss_mask = {0, 0};
  plain.first().completion_ids = {12};
  plain.answer_ids = {13, 14};
  const Seen seen({&tools, &cut, &plain});
  for (const bool answers : {false, true}) {
    const loss::Needs needs{.old_log_prob = true, .sampling_log_prob = true, .answer_likelihood = answers};
    const model::TokenTree tree = RolloutRows::tree(seen.views, needs);
    std::vector<std::int64_t> targets = {5, 8, 9, 11, 12}, begins = {0, 3, 4, 5};
    if (answers) targets.insert(targets.end(), {13, 14}), begins.push_back(7);
    CHECK(tree.target == targets);
    CHECK(tree.row_begin == begins);
    CHECK(tree.untempered == (answers ? 2 : 0));
    // What predicts a target stands right before it.
    for (std::size_t n = 0; n < targets.size(); ++n)
      CHECK(tree.ids[static_cast<std::size_t>(tree.source[n])] ==
            (targets[n] == 5 || targets[n] == 12 || targets[n] == 13 ? 2 : targets[n] - 1));
  }
  tools.first().sampling_log_probs = {-1, -2, -3, -4, -5};
  cut.first().sampling_log_probs = {-6, -7};
  plain.first().sampling_log_probs = {-8};
  cut.first().old_log_probs = {-9, -10};
  const model::Scores scores{at::tensor({-.1, -.2, -.3, -.4, -.5}, at::kDouble), {}};
  const loss::Scored scored =
      RolloutRows::collate(seen.views, scores, {.old_log_prob = true, .sampling_log_prob = true});
  CHECK(values(scored.mask) == std::vector<double>{1, 1, 1, 0, 1});
  CHECK(values(scored.row) == std::vector<double>{0, 0, 0, 1, 2});
  CHECK(values(scored.row_length) == std::vector<double>{3, 0, 1});
  CHECK(values(scored.sampling_log_prob) == std::vector<double>{-1, -4, -5, -7, -8});
  CHECK(values(scored.old_log_prob) == std::vector<double>{-.1, -.2, -.3, -10, -.5});
  RolloutRows::remember(seen.views, scores.log_prob);
  CHECK(tools.first().old_log_probs == std::vector<float>{-.1F, 0, 0, -.2F, -.3F});
  CHECK(cut.first().old_log_probs == std::vector<float>{-9, -10});
  CHECK(plain.first().old_log_probs == std::vector<float>{-.5F});
  // Scored by themselves, two rows a pass.
  rlalgo::support::Bandit bandit(15, at::kDouble);
  RolloutRows::score(bandit, seen.tokens, 2, 1.0, &data::Row::reference_log_probs);
  const auto log_p = static_cast<float>(-std::log(15.0));
  CHECK(tools.first().reference_log_probs[3] == Approx(log_p));
  CHECK(tools.first().reference_log_probs[1] == 0.0F);
  CHECK(cut.first().reference_log_probs == std::vector<float>{0.0F, tools.first().reference_log_probs[0]});
  CHECK(plain.first().reference_log_probs.at(0) == Approx(log_p));
}

TEST_CASE("the rows of episodes: those of one in turn, each with its rewards and its advantage") {
  std::vector<data::Episode> episodes(3);
  episodes[0].advantage = 0.5;
  episodes[1].advantage = -2.0;
  episodes[1].rewards = {3.0};
  episodes[1].rows.resize(3);
  episodes[1].rows[1].completion_ids = {5, 6};
  episodes[1].rows[2].completion_ids = {7};
  episodes[1].rows[2].loss_mask = {0};
  const Seen seen({&episodes[0], &episodes[1], &episodes[2]});
  std::vector<data::Row>& own = episodes[1].rows;
  CHECK(seen.tokens == std::vector<data::Row*>{&episodes[0].rows[0], &own[0], &own[1], &own[2], &episodes[2].rows[0]});
  for (const std::size_t k : {1U, 2U, 3U}) {
    CHECK(seen.rows[k].episode().advantage == -2.0);
    CHECK(seen.rows[k].episode().rewards == std::vector<double>{3.0});
    CHECK_FALSE(RolloutRows::idle(seen.rows[k]));
  }
  CHECK(RolloutRows::idle(seen.rows[4]));
  loss::Counts counts;
  RolloutRows::count(seen.views, {}, counts);
  CHECK(counts.rows == 5);
  CHECK(counts.tokens == 2);
}

TEST_CASE("an answer stands behind the first row of its episode alone") {
  data::Episode episode;
  episode.answer_ids = {9, 10};
  episode.rows.resize(2);
  for (data::Row& row : episode.rows) row.prompt_ids = {4}, row.completion_ids = {6, 7};
  const Seen seen({&episode});
  const loss::Needs needs{.answer_likelihood = true};
  const model::TokenTree tree = RolloutRows::tree(seen.views, needs);
  CHECK(tree.untempered == 2);
  CHECK(tree.target == std::vector<std::int64_t>{6, 7, 6, 7, 9, 10});
  loss::Counts counts;
  RolloutRows::count(seen.views, needs, counts);
  CHECK(counts.likelihood_tokens == 2);
  CHECK_FALSE(RolloutRows::idle(seen.rows[0]));
  CHECK(RolloutRows::idle(seen.rows[1]));
}

TEST_CASE("answers stand behind all completions, at temperature 1 and without mask, where the loss asks for them") {
  data::Episode a, b;
  a.first().prompt_ids = b.first().prompt_ids = {4, 5};
  a.first().completion_ids = {6};
  b.first().completion_ids = {7, 8};
  a.answer_ids = {9, 10, 11};
  a.first().old_log_probs = {-1.0F};
  b.first().old_log_probs = {-2.0F, -3.0F};
  const Seen seen({&a, &b});
  CHECK(RolloutRows::tree(seen.views).targets() == 3);
  CHECK(RolloutRows::tree(seen.views).untempered == 0);
  const loss::Needs needs{.old_log_prob = true, .answer_likelihood = true};
  const model::TokenTree tree = RolloutRows::tree(seen.views, needs);
  CHECK(tree.target == std::vector<std::int64_t>{6, 7, 8, 9, 10, 11});
  CHECK(tree.untempered == 3);
  const model::Scores scores{at::tensor({-.1, -.2, -.3, -.4, -.5, -.6}, at::kDouble), {}};
  const loss::Scored scored = RolloutRows::collate(seen.views, scores, needs);
  CHECK(values(scored.mask) == std::vector<double>{1, 1, 1, 0, 0, 0});
  CHECK(values(scored.likelihood_mask) == std::vector<double>{0, 0, 0, 1, 1, 1});
  CHECK(values(scored.row) == std::vector<double>{0, 1, 1, 0, 0, 0});
  CHECK(values(scored.row_length) == std::vector<double>{1, 2});
  CHECK(values(scored.old_log_prob) == std::vector<double>{-1, -2, -3, 0, 0, 0});
  loss::Counts counts;
  RolloutRows::count(seen.views, needs, counts);
  CHECK(counts.rows == 2);
  CHECK(counts.tokens == 3);
  CHECK(counts.likelihood_tokens == 3);
  a.answer_mask = {0, 1, 1};
  CHECK(values(RolloutRows::collate(seen.views, scores, needs).likelihood_mask) ==
        std::vector<double>{0, 0, 0, 0, 1, 1});
  loss::Counts fewer;
  RolloutRows::count(seen.views, needs, fewer);
  CHECK(fewer.likelihood_tokens == 2);
  CHECK_FALSE(RolloutRows::idle(seen.rows[0]));  // of advantage 0, but it brings an answer
  CHECK(RolloutRows::idle(seen.rows[1]));
  b.first().old_log_probs.clear();
  RolloutRows::remember(seen.views, scores.log_prob);
  CHECK(b.first().old_log_probs == std::vector<float>{-.2F, -.3F});
}

TEST_CASE("old log-probs are remembered once, others are stored whenever they are scored") {
  data::Episode a, b;
  a.first().completion_ids = {1};
  b.first().completion_ids = {2, 3};
  b.first().old_log_probs = {-7.0F, -8.0F};
  const Seen seen({&a, &b});
  const at::Tensor log_prob = at::tensor({-0.5, -1.5, -2.5}, at::kDouble);
  RolloutRows::remember(seen.views, log_prob);
  CHECK(a.first().old_log_probs == std::vector<float>{-0.5F});
  CHECK(b.first().old_log_probs == std::vector<float>{-7.0F, -8.0F});
  RolloutRows::store(seen.tokens, log_prob, &data::Row::reference_log_probs);
  CHECK(b.first().reference_log_probs == std::vector<float>{-1.5F, -2.5F});
}

TEST_CASE("scoring in chunks fills every row with the same values as in one") {
  std::vector<data::Row> some(5);
  std::vector<data::Row*> rows;
  for (std::size_t i = 0; i < some.size(); ++i) {
    some[i].prompt_ids = {0};
    some[i].completion_ids = {static_cast<std::int32_t>(i % 3), 1};
    rows.push_back(&some[i]);
  }
  rlalgo::support::Bandit bandit(3, at::kDouble);
  {
    const at::NoGradGuard guard;
    bandit.logits.copy_(at::tensor({0.1, 0.7, -0.4}, at::kDouble));
  }
  RolloutRows::score(bandit, rows, 2, 1.0, &data::Row::old_log_probs);
  RolloutRows::score(bandit, rows, 100, 1.0, &data::Row::reference_log_probs);
  for (const data::Row* r : rows) {
    REQUIRE(r->old_log_probs.size() == 2);
    CHECK(r->old_log_probs == r->reference_log_probs);
  }
  CHECK(rows[0]->old_log_probs[0] != rows[1]->old_log_probs[0]);
}

TEST_CASE("a row of other weights is never given ratio 1 in silence") {
  data::Episode episode;
  episode.rows.resize(4);
  std::vector<data::Row>& rows = episode.rows;
  for (data::Row& r : rows) {
    r.prompt_ids = {0};
    r.completion_ids = {1, 2};
  }
  const Seen seen({&episode});
  rows[0].weights_version = 7;  // of the weights of now
  rows[1].weights_version = 6;  // earlier, as its generator reported it
  rows[1].sampling_log_probs = {-0.25F, -0.5F};
  rows[2].weights_version = 6;  // earlier, known
  rows[2].old_log_probs = {-1.0F, -2.0F};
  rows[3].weights_version = 6;  // earlier, and nobody knows
  rlalgo::support::Bandit policy(4, at::kDouble);
  sampler::Warnings warnings;
  const sampler::Scorers scorers{.policy = policy, .version = 7};
  RolloutRows::complete(seen.views, scorers, {}, warnings);
  CHECK(rows[1].old_log_probs.empty());  // nobody reads them
  RolloutRows::complete(seen.views, scorers, {.old_log_prob = true}, warnings);
  CHECK(rows[0].old_log_probs.empty());
  CHECK(rows[1].old_log_probs == std::vector<float>{-0.25F, -0.5F});
  CHECK(rows[2].old_log_probs == std::vector<float>{-1.0F, -2.0F});
  REQUIRE(rows[3].old_log_probs.size() == 2);
  CHECK(rows[3].old_log_probs[0] == Approx(-std::log(4.0)));
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Catch::Contains("1 completions of weights version 6 (now 7)"));
}

TEST_CASE("rows that lack a reference are scored by it") {
  data::Episode known, lacking;
  known.first().prompt_ids = lacking.first().prompt_ids = {0};
  known.first().completion_ids = lacking.first().completion_ids = {1};
  known.first().reference_log_probs = {-9.0F};
  const Seen seen({&known, &lacking});
  rlalgo::support::Bandit policy(4), reference(2, at::kDouble);
  sampler::Warnings warnings;
  RolloutRows::complete(seen.views, {policy, &reference}, {.reference_log_prob = true}, warnings);
  CHECK(known.first().reference_log_probs == std::vector<float>{-9.0F});
  CHECK(lacking.first().reference_log_probs.at(0) == Approx(-std::log(2.0)));
}

TEST_CASE("where the loss corrects for the generator, rows of other weights keep the policy's own old log-probs") {
  rlalgo::support::Bandit bandit(4);
  data::Episode row;
  row.first().completion_ids = {1, 2};
  row.first().sampling_log_probs = {-0.5F, -0.25F};
  row.first().weights_version = 3;
  const Seen seen({&row});
  sampler::Warnings warnings;
  RolloutRows::complete(seen.views, {.policy = bandit, .version = 5, .corrects_sampling = true}, {.old_log_prob = true},
                        warnings);
  CHECK(row.first().old_log_probs.empty());
  CHECK(warnings.empty());
  RolloutRows::complete(seen.views, {.policy = bandit, .version = 5}, {.old_log_prob = true}, warnings);
  CHECK(row.first().old_log_probs == row.first().sampling_log_probs);
}
