#include <loss/scored_batch.hpp>

#include <rlalgo/loss/clipped_ratio.hpp>

namespace {
using namespace scored_batch;
using rlalgo::loss::ClippedRatio;
using rlalgo::loss::PolicyTerms;
using rlalgo::loss::Unit;

// One token per row with the given ratios and advantages.
struct Tokens {
  Tensor ratio;
  Scored scored;
  PolicyTerms terms;
  Tokens(const std::vector<double>& ratios, const std::vector<double>& advantages)
      : ratio(column(ratios).requires_grad_()),
        scored{.log_prob = ratio.log(),
               .mask = at::ones_like(ratio.detach()),
               .row = at::arange(ratio.numel(), at::kLong),
               .row_length = at::ones_like(ratio.detach()),
               .advantage = column(advantages)},
        terms{scored, Unit::token, scored.log_prob, scored.log_prob, ratio, scored.advantage, scored.advantage} {}
};
}  // namespace

TEST_CASE("the clipped surrogate is the pessimistic branch, by hand") {
  STATIC_REQUIRE(rlalgo::loss::Surrogate<ClippedRatio>);
  // A > 0: capped at 1 + 0.3; A < 0: floored at 1 − 0.2, uncapped above.
  Tokens t({0.5, 1.0, 1.25, 2.0, 0.5, 1.0, 2.0, 9.0}, {2, 2, 2, 2, -3, -3, -3, -3});
  rlalgo::loss::Metrics metrics;
  const Tensor loss = ClippedRatio({.epsilon_low = 0.2, .epsilon_high = 0.3})(t.terms, metrics);
  check_close(loss, {-1.0, -2.0, -2.5, -2.6, 2.4, 3.0, 6.0, 27.0}, 1e-12);
  loss.sum().backward();
  check_close(t.ratio.grad(), {-2, -2, -2, 0, 0, 3, 3, 3}, 1e-12);
  // Clipped: 2.0 with A > 0, 0.5 with A < 0.
  CHECK(metrics.value("clip_ratio/high_mean") == 1.0 / 8);
  CHECK(metrics.value("clip_ratio/low_mean") == 1.0 / 8);
  CHECK(metrics.value("clip_ratio/region_mean") == 2.0 / 8);
  CHECK(metrics.value("clip_ratio/low_min") == 0.0);
  CHECK(metrics.value("clip_ratio/high_max") == 1.0);
}

TEST_CASE("delta bounds the unclipped branch, and the clip metrics see the bounded ratio") {
  Tokens t({2.0, 9.0, 2.0}, {-3, -3, 2});
  rlalgo::loss::Metrics metrics;
  const Tensor loss = ClippedRatio({.epsilon_low = 0.2, .epsilon_high = 0.3, .delta = 4.0})(t.terms, metrics);
  check_close(loss, {6.0, 12.0, -2.6}, 1e-12);
  loss.sum().backward();
  check_close(t.ratio.grad(), {3, 0, 0}, 1e-12);
  CHECK(metrics.value("clip_ratio/high_mean") == Approx(1.0 / 3));
  // With delta below 1 + ε_high nothing counts as clipped above.
  rlalgo::loss::Metrics bounded;
  ClippedRatio({.epsilon_low = 0.2, .epsilon_high = 0.3, .delta = 1.3})(t.terms, bounded);
  CHECK(bounded.value("clip_ratio/high_mean") == 0.0);
}
