#include <loss/scored_batch.hpp>

#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/reinforce.hpp>
#include <rlalgo/loss/token_ratio.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;

}  // namespace

TEST_CASE("REINFORCE is the advantage-weighted score function") {
  const Scored s = two_rows();
  const PolicyGradient<Reinforce, TokenRatio, NoKl, GlobalTokenCount> loss({});
  const Result result = loss(s, counts_of(s));
  // −(1.5·(−3.8) − 0.8·(−1.9)) / 6
  CHECK(result.value.item<double>() == Approx(4.18 / 6).epsilon(1e-13));
  check_close(gradient(result.value, s), {-0.25, -0.25, -0.25, -0.25, 0.8 / 6, 0.8 / 6, 0, 0}, 1e-13);
  CHECK(std::isnan(result.metrics.value("clip_ratio/low_mean")));
}
