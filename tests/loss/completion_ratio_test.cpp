#include <loss/scored_batch.hpp>

#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/completion_ratio.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/row_mean.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;
}  // namespace

TEST_CASE("the completion ratio is the product of the token ratios") {
  const Scored s = two_rows();
  const Tensor log_ratio = rlalgo::tensor::masked(s.log_prob - s.old_log_prob, s.mask);
  check_close(CompletionRatio()(log_ratio, s), {2.4596031112, 1.2214027582}, 1e-9);  // e^0.9, e^0.2
}

// Reference: TRL (rloo_trainer.py) in float64.
TEST_CASE("the clipped completion ratio with the row mean is RLOO's loss") {
  const Scored s = two_rows();
  const PolicyGradient<ClippedRatio, CompletionRatio, NoKl, RowMean> loss({});
  const Result result = loss(s, counts_of(s));
  CHECK(result.value.item<double>() == Approx(-0.4114388967).margin(1e-9).epsilon(0));
  check_close(gradient(result.value, s), {0, 0, 0, 0, 0.4885611033, 0.4885611033, 0, 0}, 1e-9);
}
