#include <loss/scored_batch.hpp>

#include <rlalgo/loss/cispo.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
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
using CispoLoss = PolicyGradient<Cispo, L, NoKl, GlobalTokenCount>;
}  // namespace

// Reference: TRL (grpo_trainer.py) in float64.
TEST_CASE("CISPO gives TRL's value and gradient: the cap is ε_high itself") {
  check_golden(CispoLoss<TokenRatio>({}), 0.1393333333, {-0.05, -0.05, -0.05, -0.05, 0.0266666667, 0.0266666667, 0, 0});
  check_golden(CispoLoss<SequenceRatio>({}), 0.1393333333,
               {-0.05, -0.05, -0.05, -0.05, 0.0266666667, 0.0266666667, 0, 0});
  const CispoLoss<TokenRatio> wide({.surrogate = {.epsilon_high = 5.0}});
  check_golden(wide, 0.8690529393,
               {-0.3374647019, -0.2262093545, -0.2762927295, -0.4555297001, 0.1799811743, 0.1206449891, 0, 0});
  check_golden(wide, 0.4345264696, {}, {4, 12, 2});
}

TEST_CASE("CISPO on-policy, and its clip metric") {
  Scored s = two_rows();
  CHECK(CispoLoss<TokenRatio>({})(s, counts_of(s)).metrics.value("cispo_clip_ratio") == Approx(4.0 / 6));
  CHECK(CispoLoss<SequenceRatio>({})(s, counts_of(s)).metrics.value("cispo_clip_ratio") == Approx(1.0 / 2));
  s.old_log_prob = Tensor();
  CHECK(CispoLoss<TokenRatio>({})(s, counts_of(s)).value.item<double>() == Approx(0.1393333333).margin(1e-9));
  const CispoLoss<TokenRatio> wide({.surrogate = {.epsilon_high = 5.0}});
  CHECK(wide(s, counts_of(s)).value.item<double>() == Approx(0.6966666667).margin(1e-9));
}
