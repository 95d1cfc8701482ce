#include <loss/scored_batch.hpp>

#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/sequence_token_ratio.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;
}  // namespace

// Reference: TRL (experimental gspo_token) in float64.
TEST_CASE("GSPO-token has the sequence ratio's value and TRL's gradient") {
  const Scored s = two_rows();
  const PolicyGradient<ClippedRatio, SequenceTokenRatio, NoKl, SequenceMean> loss({});
  const Result result = loss(s, counts_of(s));
  CHECK(result.value.item<double>() == Approx(-0.4579316328).margin(1e-9).epsilon(0));
  check_close(gradient(result.value, s), {0, 0, 0, 0, 0.2210341836, 0.2210341836, 0, 0}, 1e-9);
  CHECK(result.metrics.value("clip_ratio/high_mean") == Approx(4.0 / 6));
}
