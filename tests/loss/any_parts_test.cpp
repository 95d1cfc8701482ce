#include <loss/scored_batch.hpp>

#include <rlalgo/loss/any_parts.hpp>
#include <rlalgo/loss/cispo.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/off_policy_mask.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sampling_correction.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/sequence_ratio.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/top_entropy.hpp>
#include <rlalgo/loss/vespo.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;

// The erased composition gives the value and the metrics of the plain one, bit for bit.
template <class S, class Ratio, class R>
void check_same(const SamplingCorrection::Config& correction = {}) {
  const Scored s = six_rows();
  Scored with = s;
  with.sampling_log_prob = s.old_log_prob + 0.1 * s.log_prob.detach();
  using Plain = PolicyGradient<S, Ratio, K3Kl, R, TopEntropy, OffPolicyMask, SamplingCorrection>;
  using Erased = PolicyGradient<AnySurrogate, Ratio, K3Kl, AnyReduction, AnyWeights, SamplingCorrection>;
  typename Plain::Config plain{};
  plain.weights = {{.share = 0.6}, {.threshold = 0.05}, correction};
  typename Erased::Config erased{.surrogate = AnySurrogate::of(S()), .reduction = AnyReduction::of(R())};
  erased.weights = {
      {.calls = {AnyWeights::of(TopEntropy({.share = 0.6})), AnyWeights::of(OffPolicyMask({.threshold = 0.05}))}},
      correction};
  const Result a = Plain(plain)(with, counts_of(with)), b = Erased(erased)(with, counts_of(with));
  CHECK(a.value.item<double>() == b.value.item<double>());
  CHECK(a.value.item<double>() != 0.0);
  CHECK(a.metrics.values() == b.metrics.values());
}
}  // namespace

TEST_CASE("parts chosen at run time are the parts") {
  check_same<ClippedRatio, TokenRatio, SequenceMean>();
  check_same<ClippedRatio, SequenceRatio, GlobalTokenCount>({Unit::token, CorrectionMode::truncate, {}, 2.0});
  check_same<Cispo, TokenRatio, GlobalTokenCount>();
  check_same<Vespo, TokenRatio, GlobalTokenCount>({Unit::token, CorrectionMode::truncate, {}, 2.0});
  check_same<Vespo, TokenRatio, GlobalTokenCount>();
}
