#include <loss/pair_batch.hpp>

#include <rlalgo/loss/odds_ratio.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

namespace {

// One pair with mean log-probs `chosen` and `rejected`; one prompt token of the chosen row so that the likelihood is
// `nll`. Row 0: [prompt | c c], row 1: [r r r].
Scored odds(double chosen, double rejected, double nll) {
  Scored s = batch({{0, 0, 3}, {0, 0, 3}});
  s.log_prob =
      at::tensor({-3 * nll - 2 * chosen, chosen, chosen, rejected, rejected, rejected}, at::kDouble).requires_grad_();
  s.mask = at::tensor({0., 1., 1., 1., 1., 1.}, at::kDouble);
  s.row_length = at::tensor({2., 3.}, at::kDouble);
  return s;
}

}  // namespace

TEST_CASE("orpo: golden rows (60-digit arithmetic)") {
  struct Golden {
    double chosen, rejected, beta, nll, log_odds, ratio, loss, chosen_slope, rejected_slope;
  };
  for (const Golden& g : std::vector<Golden>{
           {-0.5, -1.2, 0.1, 1.5, 1.27436971171, -0.246553113483, 1.52465531135, -0.0555342246117, 0.0312690809003},
           {-1.2, -0.5, 0.1, 1.5, -1.27436971171, -1.52092282519, 1.65209228252, -0.111832195169, 0.198615183642},
           {-2, -2, 0.25, 0.8, 0, -0.693147180560, 0.973286795140, -0.144564705344, 0.144564705344},
           {-0.01, -50, 0.1, 0.7, 54.6001660193, -1.93842582356e-24, 0.7, -1.9481341062e-23, 1.93842582356e-25},
           {-50, -0.01, 0.1, 0.7, -54.6001660193, -54.6001660193, 6.16001660193, -0.1, 10.0500833332},
           {-1e-7, -3, 0.1, 0.7, 19.0670264200, -5.23956989738e-9, 0.700000000524, -0.00523957014563,
            5.51410079702e-10}}) {
    INFO(g.chosen << " " << g.rejected);
    const Scored s = odds(g.chosen, g.rejected, g.nll);
    const Result r = OddsRatio({.beta = g.beta})(s, counts_of(s));
    check_relative(r.value.item<double>(), g.loss, 1e-10);
    CHECK(r.metrics.value("log_odds_chosen") == Approx(g.log_odds).epsilon(1e-9).margin(1e-12));
    check_relative(r.metrics.value("log_odds_ratio"), g.ratio, 1e-8);
    CHECK(r.metrics.value("nll_loss") == Approx(g.nll));
    CHECK(r.metrics.value("logps/chosen") == Approx(g.chosen));
    CHECK(r.metrics.value("rewards/chosen") == Approx(g.beta * g.chosen));
    // Slopes in the mean log-probs, without the likelihood's share of −1/3 per token.
    const Tensor slope = scored_batch::gradient(r.value, s);
    CHECK(slope[0].item<double>() == Approx(-1.0 / 3));
    CHECK((slope[1].item<double>() + 1.0 / 3) * 2 == Approx(g.chosen_slope).epsilon(1e-8).margin(1e-12));
    check_relative(slope[3].item<double>() * 3, g.rejected_slope, 1e-8);
  }
}

TEST_CASE("orpo: gradients by finite differences, any split, and certainty stays finite") {
  const OddsRatio loss({.beta = 0.2});
  const Scored s = batch(pairs({p1, p2, third}));
  check_gradient(loss, s);
  check_invariance(loss, s);
  const Scored certain = odds(0.0, -1.0, 0.5);
  const Result r = loss(certain, counts_of(certain));
  CHECK(std::isfinite(r.value.item<double>()));
  CHECK(scored_batch::gradient(r.value, certain).isfinite().all().item<bool>());
}

TEST_CASE("orpo: the likelihood takes in prompt tokens") {
  // Chosen A: prompt .9, completion 2; chosen B: prompt .4 + .6, completion .5 + .25 + .75.
  Scored s = batch({{0, 0, 2}, {-1, 0, 1}, {0, 0, 5}, {-1, 0, 1}});
  s.log_prob = at::tensor({-.9, -2., -1., -.4, -.6, -.5, -.25, -.75, -1.}, at::kDouble).requires_grad_();
  s.mask = at::tensor({0., 1., 1., 0., 0., 1., 1., 1., 1.}, at::kDouble);
  s.row_length = at::tensor({1., 1., 3., 1.}, at::kDouble);
  check_relative(OddsRatio({})(s, counts_of(s)).metrics.value("nll_loss"), 5.4 / 7);
  CHECK(OddsRatio::needs.prompt_likelihood);
}
