#include <loss/scored_batch.hpp>

#include <limits>

#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sampling_correction.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/vespo.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;

template <class R, class S = ClippedRatio>
double value(const SamplingCorrection::Config& correction, const Scored& s = two_rows()) {
  using L = PolicyGradient<S, TokenRatio, NoKl, R, SamplingCorrection>;
  typename L::Config config;
  std::get<0>(config.weights) = correction;
  return L(config)(s, counts_of(s)).value.template item<double>();
}

constexpr auto token = Unit::token, row = Unit::row;
constexpr auto clamp = CorrectionMode::truncate, mask = CorrectionMode::mask;
}  // namespace

// Reference: TRL (grpo_trainer.py) in float64.
TEST_CASE("the four corrections give TRL's values") {
  const auto check = [](const SamplingCorrection::Config& c, double dapo, double grpo) {
    CHECK(value<GlobalTokenCount>(c) == Approx(dapo).margin(1e-9));
    CHECK(value<SequenceMean>(c) == Approx(grpo).margin(1e-9));
  };
  check({token, clamp, {}, 3.0}, -1.3304678312, -0.7223937806);
  check({token, mask, {}, 3.0}, -0.4304678312, -0.0473937806);
  check({row, clamp, {}, 3.0}, -2.9403206269, -1.9298512513);
  check({row, mask, {}, 3.0}, 0.3671856252, 0.5507784378);
  check({}, 0.3671856252, 0.5507784378);
  check({token, clamp, 0.7, 2.0}, -1.0304678312, -0.4973937806);
  check({row, clamp, 0.7, 2.0}, -1.8378185429, -1.1029746883);
}

TEST_CASE("VESPO takes the ratio into its sequence weight") {
  CHECK(value<GlobalTokenCount, Vespo>({token, clamp, {}, 3.0}) == Approx(-0.3145226037).margin(1e-9));
  CHECK(value<GlobalTokenCount, Vespo>({token, mask, {}, 2.0}) == Approx(-0.3145228565).margin(1e-9));
}

TEST_CASE("metrics are of the loss tokens, or of the rows") {
  const Scored s = two_rows();
  using L = PolicyGradient<ClippedRatio, TokenRatio, NoKl, SequenceMean, SamplingCorrection>;
  const auto metrics = [&](const SamplingCorrection::Config& correction) {
    L::Config config;
    std::get<0>(config.weights) = correction;
    return L(config)(s, counts_of(s)).metrics;
  };
  const auto tokens = metrics({token, clamp, {}, 3.0});
  CHECK(tokens.value("sampling/sampling_logp_difference/mean") == Approx((0.1 + 0.2 + 0.1 + 1.2 + 0.4 + 0.2) / 6));
  CHECK(tokens.value("sampling/sampling_logp_difference/max") == Approx(1.2));
  CHECK(tokens.value("sampling/importance_sampling_ratio/min") == Approx(0.8187307531));
  CHECK(tokens.value("sampling/importance_sampling_ratio/max") == Approx(3.0));
  CHECK(tokens.value("sampling/importance_sampling_ratio/raw_min") == Approx(0.8187307531));
  CHECK(tokens.value("sampling/importance_sampling_ratio/raw_max") == Approx(3.3201169227));
  CHECK(tokens.value("sampling/importance_sampling_ratio/bounded_ratio") == Approx(1.0 / 6));
  const auto rows = metrics({row, mask, {}, 3.0});
  CHECK(rows.value("sampling/importance_sampling_ratio/min") == 0.0);
  CHECK(rows.value("sampling/importance_sampling_ratio/mean") == Approx(1.2214027582 / 2));
  CHECK(rows.value("sampling/importance_sampling_ratio/max") == Approx(1.2214027582));
  CHECK(rows.value("sampling/importance_sampling_ratio/raw_min") ==
        Approx(1.2214027582));  // what is masked counts here
  CHECK(rows.value("sampling/importance_sampling_ratio/raw_max") > 3.0);
  CHECK(rows.value("sampling/importance_sampling_ratio/bounded_ratio") == 0.5);
}

TEST_CASE("the KL term is not corrected, unknown tokens count as equal, no log-probs are an error") {
  Scored s = two_rows();
  using L = PolicyGradient<ClippedRatio, TokenRatio, K3Kl, GlobalTokenCount, SamplingCorrection>;
  L::Config config{.kl = {.beta = 0.04}};
  std::get<0>(config.weights) = {token, mask, {}, 3.0};
  CHECK(L(config)(s, counts_of(s)).value.item<double>() == Approx(-0.4304678312 + 0.04 * 0.0149903098).margin(1e-9));

  s.sampling_log_prob = s.old_log_prob.clone();
  s.sampling_log_prob[3] = std::numeric_limits<double>::quiet_NaN();
  CHECK(value<GlobalTokenCount>({}, s) == Approx(-0.8018759206).margin(1e-9));
  s.sampling_log_prob = Tensor();
  CHECK_THROWS_WITH(value<GlobalTokenCount>({}, s), Catch::Contains("[rlalgo.loss.20]"));
}
