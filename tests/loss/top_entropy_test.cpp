#include <loss/scored_batch.hpp>

#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/top_entropy.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;

double value(double share) {
  const Scored s = two_rows();
  PolicyGradient<ClippedRatio, TokenRatio, NoKl, GlobalTokenCount, TopEntropy>::Config config;
  std::get<0>(config.weights).share = share;
  return PolicyGradient<ClippedRatio, TokenRatio, NoKl, GlobalTokenCount, TopEntropy>(config)(s, counts_of(s))
      .value.item<double>();
}
}  // namespace

// Reference: TRL (grpo_trainer.py) in float64.
TEST_CASE("only the tokens of highest entropy carry the surrogate") {
  CHECK(value(0.5) == Approx(-0.4556477404).margin(1e-9));
  CHECK(value(0.2) == Approx(-0.1556477404).margin(1e-9));
  CHECK(value(0.0) == Approx(-0.2762927295).margin(1e-9));
  CHECK(value(1.0) == Approx(-0.8018759206).margin(1e-9));
}

TEST_CASE("ten tokens, the top fifth; masked tokens are neither counted nor kept; none at all is none") {
  Scored s{.log_prob = column(std::vector<double>(12, -1.0)),
           .entropy = column({0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 9.0, 9.0}),
           .mask = column({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}),
           .row = at::zeros({12}, at::kLong),
           .row_length = column({10}),
           .advantage = column({1.0})};
  rlalgo::loss::Metrics metrics;
  const PolicyTerms terms{.scored = s};
  check_close(TopEntropy({.share = 0.2})(terms, metrics), {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0}, 0);
  s.mask.zero_();
  check_close(TopEntropy({.share = 0.2})(terms, metrics), std::vector<double>(12, 0.0), 0);
}
