#include <loss/scored_batch.hpp>

#include <rlalgo/loss/sapo.hpp>

#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/sequence_ratio.hpp>
#include <rlalgo/loss/token_ratio.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;

void check_golden(const auto& loss, double value, const std::vector<double>& slopes, Counts counts = {2, 6, 1}) {
  const Scored s = two_rows();
  const Result result = loss(s, counts);
  CHECK(result.value.template item<double>() == Approx(value).margin(1e-9).epsilon(0));
  if (!slopes.empty()) check_close(gradient(result.value, s), slopes, 1e-9);
}

template <class L>
using SapoLoss = PolicyGradient<Sapo, L, NoKl, SequenceMean>;
}  // namespace

// Reference: TRL (grpo_trainer.py) in float64.
TEST_CASE("SAPO gives TRL's value and gradient") {
  check_golden(SapoLoss<TokenRatio>({}), -0.9007403757,
               {-0.2455089371, -0.1692734949, -0.2066475920, -0.2898499862, 0.2610647723, 0.1805165326, 0, 0});
  check_golden(SapoLoss<SequenceRatio>({}), -0.8843139227,
               {-0.2311124069, -0.2311124069, -0.2311124069, -0.2311124069, 0.2203616913, 0.2203616913, 0, 0});
  check_golden(SapoLoss<TokenRatio>({.surrogate = {.temperature_positive = 2, .temperature_negative = 3}}),
               -0.6297489815, {});
  Scored s = two_rows();
  s.old_log_prob = Tensor();
  CHECK(SapoLoss<TokenRatio>({})(s, counts_of(s)).value.item<double>() == Approx(-0.7380952381).margin(1e-9));
}
