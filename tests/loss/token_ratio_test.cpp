#include <loss/scored_batch.hpp>

#include <rlalgo/loss/token_ratio.hpp>

using namespace scored_batch;

TEST_CASE("the token ratio is the exponential of the log-ratio") {
  const Scored s = two_rows();
  STATIC_REQUIRE(rlalgo::loss::RatioLevel<rlalgo::loss::TokenRatio>);
  const Tensor ratio = rlalgo::loss::TokenRatio()(s.log_prob - s.old_log_prob, s);
  check_close(
      ratio,
      {1.3498588076, 0.9048374180, 1.1051709181, 1.8221188004, 1.3498588076, 0.9048374180, 1.6487212707, 0.3678794412},
      1e-9);
}
