#include <loss/scored_batch.hpp>

#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/off_policy_mask.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;

// The second row's generator was surer: D_2 = ((−0.2 + 0.7) + (−0.5 + 1.2)) / 2 = 0.6.
Scored moved() {
  Scored s = two_rows();
  s.sampling_log_prob = column({-1.2, -0.6, -2.0, -2.1, -0.2, -0.5, -1.0, -1.0});
  return s;
}

template <class R, class K = NoKl>
double value(double threshold, const Scored& s, typename K::Config kl = {}) {
  using L = PolicyGradient<ClippedRatio, TokenRatio, K, R, OffPolicyMask>;
  typename L::Config config;
  config.kl = kl;
  std::get<0>(config.weights).threshold = threshold;
  return L(config)(s, counts_of(s)).value.template item<double>();
}
}  // namespace

// Reference: TRL (grpo_trainer.py) in float64.
TEST_CASE("a completion with negative advantage that moved further than the threshold is dropped") {
  CHECK(value<GlobalTokenCount>(0.5, moved()) == Approx(-1.1025020840).margin(1e-9));
  CHECK(value<SequenceMean>(0.5, moved()) == Approx(-0.8268765630).margin(1e-9));
  CHECK(value<GlobalTokenCount>(0.7, moved()) == Approx(-0.8018759206).margin(1e-9));
  CHECK(value<GlobalTokenCount, K3Kl>(0.5, moved(), {.beta = 0.04}) == Approx(-1.1019024716).margin(1e-9));
}

TEST_CASE("without the generator's log-probs the old ones are the base; advantage 0 stays") {
  Scored s = moved();
  s.old_log_prob = s.sampling_log_prob;
  const double with_sampling = value<GlobalTokenCount>(0.5, s);
  s.sampling_log_prob = Tensor();
  CHECK(value<GlobalTokenCount>(0.5, s) == Approx(with_sampling));
  CHECK(value<GlobalTokenCount>(0.7, s) != Approx(with_sampling));
  // on-policy: nothing moved, nothing is dropped
  s.old_log_prob = Tensor();
  CHECK(value<GlobalTokenCount>(0.0, s) == value<GlobalTokenCount>(9.0, s));
  s = moved();
  s.advantage = column({1.5, 0.0});
  rlalgo::loss::Metrics metrics;
  const PolicyTerms terms{.scored = s};
  CHECK(OffPolicyMask({.threshold = 0.5})(terms, metrics).eq(1).all().item<bool>());
}
