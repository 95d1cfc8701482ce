#include <loss/pair_batch.hpp>

#include <rlalgo/loss/pair_terms.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

namespace {

// The LD-DPO example: 5 chosen and 3 rejected tokens.
Scored uneven() {
  Scored s = batch({{0, 0, 5}, {0, 0, 3}});
  s.log_prob = at::tensor({-1., -2., -.5, -.25, -3., -.7, -1.3, -.9}, at::kDouble).requires_grad_();
  s.reference_log_prob = at::tensor({-1.1, -1.8, -.6, -.45, -2.5, -.6, -1.5, -1.}, at::kDouble);
  return s;
}

}  // namespace

TEST_CASE("rows become pairs: sums, lengths, reference") {
  const Scored s = batch(pairs({p1, p2}));
  const PairTerms t = make_pair_terms(s, counts_of(s), 0.1, true);
  CHECK(at::allclose(t.chosen, at::tensor({-12., -20.5}, at::kDouble)));
  CHECK(at::allclose(t.rejected, at::tensor({-15., -18.25}, at::kDouble)));
  CHECK(at::allclose(t.chosen_ratio(), at::tensor({1., -1.5}, at::kDouble)));
  CHECK(at::allclose(t.rejected_ratio(), at::tensor({-1., 1.25}, at::kDouble)));
  CHECK(at::equal(t.chosen_length, at::tensor({4., 5.}, at::kDouble)));
  CHECK(at::equal(t.rejected_length, at::tensor({6., 7.}, at::kDouble)));
  CHECK(t.likelihood.mean().item<double>() == Approx((12 + 20.5) / 9));
}

TEST_CASE("reference sums from before stand for reference tokens") {
  Scored s = batch(pairs({p1}));
  s.reference_log_prob = Tensor();
  s.reference_row_log_prob = at::tensor({-13., -14.}, at::kDouble);
  const PairTerms t = make_pair_terms(s, counts_of(s), 0.1, true);
  CHECK(t.chosen_ratio().item<double>() == Approx(1));
  s.reference_row_log_prob = Tensor();
  CHECK_THROWS_WITH(make_pair_terms(s, counts_of(s), 0.1, true), Catch::StartsWith("[rlalgo.loss.10]"));
}

TEST_CASE("ld_alpha: tokens beyond the shorter completion count alpha, in policy and reference") {
  const Scored s = uneven();
  for (const auto& [alpha, policy, reference] :
       std::vector<std::tuple<double, double, double>>{{1.0, -6.75, -6.45}, {0.5, -5.125, -4.975}, {0.0, -3.5, -3.5}}) {
    const PairTerms t = make_pair_terms(s, counts_of(s), 0.1, true, alpha);
    CHECK(t.chosen.item<double>() == Approx(policy));
    CHECK(t.reference_chosen.item<double>() == Approx(reference));
    CHECK(t.rejected.item<double>() == Approx(-2.9));
    CHECK(t.reference_rejected.item<double>() == Approx(-3.1));
  }
}

TEST_CASE("ld_alpha counts completion tokens only, in every row of a batch") {
  const Scored one = uneven();
  Scored s = take(one, {0, 1, 0, 1});
  s.mask = s.mask.clone();
  const PairTerms t = make_pair_terms(s, counts_of(s), 0.1, true, 0.5);
  CHECK(at::allclose(t.chosen.detach(), at::tensor({-5.125, -5.125}, at::kDouble)));
  s.mask[8] = 0.0;  // first token of the second pair's chosen row is context
  s.row_length = at::tensor({5., 3., 4., 3.}, at::kDouble);
  const PairTerms masked = make_pair_terms(s, counts_of(s), 0.1, true, 0.5);
  CHECK(masked.chosen[1].item<double>() == Approx(-2 - .5 - .25 - 1.5));
}

TEST_CASE("an odd number of rows is loss.11") {
  const Scored s = batch({p1[0]});
  CHECK_THROWS_WITH(make_pair_terms(s, counts_of(s), 0.1, false), Catch::StartsWith("[rlalgo.loss.11]"));
}
