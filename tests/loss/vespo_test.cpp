#include <loss/scored_batch.hpp>

#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/vespo.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;

void check_golden(const auto& loss, double value, const std::vector<double>& slopes, Counts counts = {2, 6, 1}) {
  const Scored s = two_rows();
  const Result result = loss(s, counts);
  CHECK(result.value.template item<double>() == Approx(value).margin(1e-9).epsilon(0));
  if (!slopes.empty()) check_close(gradient(result.value, s), slopes, 1e-9);
}

using VespoLoss = PolicyGradient<Vespo, TokenRatio, NoKl, GlobalTokenCount>;
}  // namespace

// Reference: TRL (grpo_trainer.py) in float64.
TEST_CASE("VESPO gives TRL's value, gradient and weights") {
  check_golden(VespoLoss({}), -0.2243854738,
               {-0.0189660698, -0.0189660698, -0.0189660698, -0.0189660698, 0.1560297575, 0.1560297575, 0, 0});
  check_golden(VespoLoss({}), -0.1121927369, {}, {4, 12, 2});
  Scored s = two_rows();
  CHECK(VespoLoss({})(s, counts_of(s)).metrics.value("vespo/phi_seq_mean") ==
        Approx((0.0758642793 + 1.1702231811) / 2).margin(1e-9));
  s.old_log_prob = Tensor();
  CHECK(VespoLoss({})(s, counts_of(s)).value.item<double>() == Approx(0.6966666667).margin(1e-9));
  CHECK(VespoLoss({})(s, counts_of(s)).metrics.value("vespo/phi_seq_mean") == Approx(1.0));
}

TEST_CASE("VESPO stays finite however far the policy has moved") {
  Scored s = two_rows();
  s.old_log_prob = s.log_prob.detach() + 1000;
  CHECK(VespoLoss({})(s, counts_of(s)).value.isfinite().item<bool>());
  s.old_log_prob = s.log_prob.detach() - 1000;
  const Result result = VespoLoss({})(s, counts_of(s));
  CHECK(result.value.item<double>() == 0.0);
}
