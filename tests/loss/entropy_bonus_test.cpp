#include <loss/scored_batch.hpp>

#include <cmath>

#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/entropy_bonus.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/top_entropy.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;

template <class Reduction>
using Objective = PolicyGradient<ClippedRatio, TokenRatio, NoKl, Reduction, TopEntropy>;

template <class Reduction>
Result with_bonus(double coefficient, double share, typename EntropyBonus<Objective<Reduction>>::Scope scope) {
  const Scored s = two_rows();
  typename EntropyBonus<Objective<Reduction>>::Config config;
  std::get<0>(config.objective.weights).share = share;
  config.coefficient = std::make_shared<EntropyCoefficient>(coefficient);
  config.share = share;
  config.scope = scope;
  return EntropyBonus<Objective<Reduction>>(config)(s, counts_of(s));
}

template <class Reduction>
double value(double coefficient, double share, typename EntropyBonus<Objective<Reduction>>::Scope scope) {
  return with_bonus<Reduction>(coefficient, share, scope).value.template item<double>();
}
}  // namespace

// Reference: TRL (grpo_trainer.py) in float64.
TEST_CASE("the bonus is the coefficient times the mean entropy of the tokens that carry the loss") {
  using Dapo = EntropyBonus<Objective<GlobalTokenCount>>::Scope;
  using Grpo = EntropyBonus<Objective<SequenceMean>>::Scope;
  CHECK(value<GlobalTokenCount>(0.1, 1.0, Dapo::step) == Approx(-0.9035425873).margin(1e-9));
  CHECK(value<SequenceMean>(0.1, 1.0, Grpo::micro_batch) == Approx(-0.4776039846).margin(1e-9));
  CHECK(value<GlobalTokenCount>(0.1, 0.5, Dapo::step) == Approx(-0.5323144071).margin(1e-9));
  CHECK(value<SequenceMean>(0.1, 0.5, Grpo::micro_batch) == Approx(-0.4045853969).margin(1e-9));
}

TEST_CASE("the loss without the bonus and the entropy it is of are reported") {
  using Scope = EntropyBonus<Objective<GlobalTokenCount>>::Scope;
  const Result result = with_bonus<GlobalTokenCount>(0.1, 1.0, Scope::step);
  CHECK(result.metrics.value("policy_loss") == Approx(-0.8018759206).margin(1e-9));
  CHECK(result.metrics.value("entropy_bonus/entropy") == Approx(1.0166666667).margin(1e-9));
  CHECK(result.metrics.value("entropy") == Approx(1.0166666667).margin(1e-9));
}

TEST_CASE("the entropy's gradient is minus the coefficient over the tokens") {
  Scored s = two_rows();
  s.entropy = s.entropy.detach().clone().requires_grad_(true);
  EntropyBonus<Objective<GlobalTokenCount>>::Config config;
  std::get<0>(config.objective.weights).share = 1.0;
  config.coefficient = std::make_shared<EntropyCoefficient>(0.3);
  Counts counts = counts_of(s);
  counts.tokens *= 2;  // a second micro-batch of as many tokens
  EntropyBonus<Objective<GlobalTokenCount>> loss(config);
  static_assert(loss.needs.entropy && loss.needs.old_log_prob);
  loss(s, counts).value.backward();
  for (std::int64_t i = 0; i < s.mask.size(0); ++i)
    CHECK(s.entropy.grad()[i].item<double>() ==
          Approx(s.mask[i].item<double>() == 0.0 ? 0.0 : -0.3 / counts.tokens).margin(1e-12));
}

TEST_CASE("an adaptive coefficient waits one step, then rises below the target and falls above it") {
  EntropyCoefficient c(0.1, {.minimum = 0.09, .maximum = 0.11, .step = 0.01, .target = 0.5});
  CHECK(c.applied() == 0.0);
  c.observe(0.4);
  CHECK(c.value() == Approx(0.11));
  CHECK(c.applied() == Approx(0.11));
  c.observe(0.5);
  CHECK(c.value() == Approx(0.11));
  c.observe(0.6);
  CHECK(c.value() == Approx(0.10));
  CHECK(c.applied() == 0.0);
  c.observe(0.6);
  c.observe(0.6);
  CHECK(c.value() == Approx(0.09));
  EntropyCoefficient fixed(0.2);
  CHECK(fixed.applied() == 0.2);
  fixed.observe(3.0);
  CHECK(fixed.applied() == 0.2);
}
