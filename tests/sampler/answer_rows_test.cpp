#include <c10/core/GradMode.h>

#include <cmath>

#include <support/bandit.hpp>
#include <support/catch.hpp>

#include <rlalgo/loss/odds_ratio.hpp>
#include <rlalgo/sampler/answer_rows.hpp>

using namespace rlalgo;
using sampler::PairRows;

namespace {

data::Answer answer(std::vector<data::TokenId> ids, std::int64_t prompt, bool desirable) {
  data::Answer a;
  a.ids = std::move(ids);
  a.prompt_tokens = prompt;
  a.desirable = desirable;
  return a;
}

struct Pair {
  std::vector<data::Answer> rows = {answer({0, 1, 2, 3}, 2, true), answer({0, 1, 1}, 2, false)};
  std::vector<data::Answer*> part = {&rows[0], &rows[1]};
};

model::Scores scores(std::int64_t n) { return {at::arange(n, at::kDouble).neg()}; }

const loss::Needs reference{.reference_log_prob = true};

}  // namespace

TEST_CASE("a pair shares its prompt: the tree holds it once") {
  Pair p;
  const auto tree = PairRows::tree(p.part, {});
  CHECK(tree.ids == std::vector<std::int64_t>{0, 1, 2});  // prompt, and the one token before chosen's last
  CHECK(tree.target == std::vector<std::int64_t>{2, 3, 1});
}

TEST_CASE("columns of a pair") {
  Pair p;
  p.rows[0].reference_log_probs = {-1.f, -2.f};
  p.rows[1].reference_log_probs = {-3.f};
  const loss::Scored s = PairRows::collate(p.part, scores(3), reference);
  CHECK(at::equal(s.row, at::tensor({0, 0, 1}, at::kLong)));
  CHECK(at::equal(s.mask, at::ones({3}, at::kDouble)));
  CHECK(at::equal(s.likelihood_mask, at::tensor({1., 1., 0.}, at::kDouble)));
  CHECK(at::equal(s.row_length, at::tensor({2., 1.}, at::kDouble)));
  CHECK(at::equal(s.desirable, at::tensor({1., 0.}, at::kDouble)));
  CHECK(at::equal(s.reference_log_prob, at::tensor({-1., -2., -3.}, at::kDouble)));
  CHECK_FALSE(s.reference_row_log_prob.defined());
  p.rows[1].reference_row = -6;
  const loss::Scored partly = PairRows::collate(p.part, scores(3), reference);
  CHECK_FALSE(partly.reference_row_log_prob.defined());
  CHECK(partly.reference_log_prob.defined());
  p.rows[0].reference_row = -5;
  const loss::Scored known = PairRows::collate(p.part, scores(3), reference);
  CHECK(at::equal(known.reference_row_log_prob, at::tensor({-5., -6.}, at::kDouble)));
}

TEST_CASE("prompt tokens of chosen rows belong to the likelihood, not to the completion") {
  Pair p;
  const loss::Needs needs = loss::OddsRatio::needs;
  const auto tree = PairRows::tree(p.part, needs);
  CHECK(tree.target == std::vector<std::int64_t>{1, 2, 3, 1});
  const loss::Scored s = PairRows::collate(p.part, scores(4), needs);
  CHECK(at::equal(s.mask, at::tensor({0., 1., 1., 1.}, at::kDouble)));
  CHECK(at::equal(s.likelihood_mask, at::tensor({1., 1., 1., 0.}, at::kDouble)));
  CHECK(at::equal(s.row_length, at::tensor({2., 1.}, at::kDouble)));
}

TEST_CASE("counts of a step") {
  Pair p;
  p.rows[0].mismatched_log_ratio = 0.5;
  p.rows[1].mismatched_log_ratio = -0.25;
  loss::Counts c;
  PairRows::count(p.part, {}, c);
  PairRows::count(p.part, {}, c);
  CHECK(c.rows == 4);
  CHECK(c.tokens == 6);
  CHECK(c.micro_batches == 0);  // the trainer's to count
  CHECK(c.likelihood_tokens == 4);
  CHECK(c.desirable == 2);
  CHECK(c.mismatched_log_ratio == 0.5);
  loss::Counts whole;
  PairRows::count(p.part, loss::OddsRatio::needs, whole);
  CHECK(whole.likelihood_tokens == 3);
  CHECK(PairRows::tokens(p.rows[0]) == 4);
}

TEST_CASE("rows are completed as far as the loss reads them") {
  Pair p;
  rlalgo::support::Bandit policy(4), frozen(4);
  sampler::Warnings warnings;
  PairRows::complete(p.part, {policy, &frozen}, reference, warnings);
  CHECK(p.rows[0].reference_log_probs.empty());
  p.rows[0].mismatched = p.rows[1].mismatched = {3, 3};
  PairRows::complete(p.part, {policy, &frozen}, {.mismatched = true}, warnings);
  CHECK(p.rows[0].mismatched_log_ratio == 0.0);
  CHECK(warnings.empty());
}

TEST_CASE(
    "log-probs of a reference stay where it computes them, of all targets, where the loss reads them and rows have "
    "none") {
  Pair p;
  rlalgo::support::Bandit policy(4), frozen(4, at::kDouble);
  const sampler::Scorers scorers{policy, &frozen};
  CHECK_FALSE(PairRows::reference(p.part, scorers, {}).defined());
  CHECK_FALSE(PairRows::reference(p.part, {policy}, reference).defined());
  const at::Tensor found = PairRows::reference(p.part, scorers, reference);
  CHECK(at::allclose(found, at::full({3}, -std::log(4.), at::kDouble)));
  CHECK_FALSE(found.requires_grad());
  // As the policy's, whose dtype it takes.
  const model::Scores narrow{at::zeros({3}, at::kFloat).requires_grad_(true), {}};
  const loss::Scored s = sampler::with_reference(PairRows::collate(p.part, narrow, reference), found);
  CHECK(s.reference_log_prob.scalar_type() == at::kFloat);
  CHECK_FALSE(s.reference_log_prob.requires_grad());
  CHECK_FALSE(sampler::with_reference(PairRows::collate(p.part, narrow, reference), {}).reference_log_prob.defined());
  // Prompt tokens of the likelihood are targets, too.
  loss::Needs both = loss::OddsRatio::needs;
  both.reference_log_prob = true;
  CHECK(PairRows::reference(p.part, scorers, both).size(0) == PairRows::tree(p.part, both).targets());
  // Of one row that lacks them, and of none.
  p.rows[1].reference_row = -7;
  CHECK(PairRows::reference(p.part, scorers, reference).size(0) == 3);
  p.rows[0].reference_row = -5;
  CHECK_FALSE(PairRows::reference(p.part, scorers, reference).defined());
}

TEST_CASE("references are scored where rows lack them, mismatched completions against both") {
  Pair p;
  rlalgo::support::Bandit policy(4), frozen(4);
  {
    const c10::AutoGradMode no_gradient(false);
    policy.logits.copy_(at::tensor({0.f, 1.f, 2.f, 3.f}));
  }
  p.rows[1].reference_row = -7;
  sampler::score_references(frozen, p.part, 1.0);
  REQUIRE(p.rows[0].reference_log_probs.size() == 2);
  CHECK(p.rows[0].reference_log_probs[0] == Approx(-std::log(4)));
  CHECK(p.rows[1].reference_log_probs.empty());
  p.rows[0].mismatched = {3, 3};
  p.rows[1].mismatched = {0};
  sampler::score_mismatched(policy, &frozen, p.part, 1.0);
  const double z = std::log(1 + std::exp(1) + std::exp(2) + std::exp(3));
  CHECK(p.rows[0].mismatched_log_ratio == Approx(2 * (3 - z + std::log(4))));
  CHECK(p.rows[1].mismatched_log_ratio == Approx(-z + std::log(4)));
  p.rows[0].mismatched_reference = -1;
  p.rows[1].mismatched_reference = -2;
  sampler::score_mismatched(policy, nullptr, p.part, 1.0);
  CHECK(p.rows[1].mismatched_log_ratio == Approx(-z + 2));
}
