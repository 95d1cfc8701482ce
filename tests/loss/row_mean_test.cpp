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

TEST_CASE("the row mean averages what each completion gives over all rows of the step") {
  STATIC_REQUIRE(Reduction<RowMean>);
  const Scored s = two_rows();
  const Tensor per_token = column({3, 3, 3, 3, 5, 5, 5, 5});
  CHECK(RowMean()(per_token, s, {.rows = 10, .tokens = 40, .micro_batches = 5}).item<double>() ==
        Approx(0.8).epsilon(1e-14));
  CHECK(RowMean()(per_token, s, {}).item<double>() == Approx(8).epsilon(1e-14));
}

// Reference: TRL (rloo_trainer.py) in float64: −(e^0.9·1.5 clipped to 1.2·1.5 + 1·(−0.8))/2, the second row masked.
TEST_CASE("a completion without loss tokens gives RLOO's loss of the ratio 1, and no gradient") {
  Scored s = two_rows();
  s.mask = column({1, 1, 1, 1, 0, 0, 0, 0});
  s.row_length = column({4, 0});
  const PolicyGradient<ClippedRatio, CompletionRatio, NoKl, RowMean> loss({.surrogate = {.epsilon_high = 2.0}});
  const Result result = loss(s, counts_of(s));
  const double ratio = 2.4596031111569496;  // e^0.9
  CHECK(result.value.item<double>() == Approx(-(ratio * 1.5 - 0.8) / 2).epsilon(1e-12));
  const double g = -ratio * 1.5 / 2;
  check_close(gradient(result.value, s), {g, g, g, g, 0, 0, 0, 0}, 1e-12);
}
