#include <support/bandit.hpp>
#include <support/catch.hpp>

#include <rlalgo/advantage/any_estimator.hpp>
#include <rlalgo/advantage/batch_whitened.hpp>
#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/advantage/pass_through.hpp>
#include <rlalgo/aggregation/any_aggregation.hpp>
#include <rlalgo/aggregation/normalize_then_sum.hpp>
#include <rlalgo/aggregation/sum_minus_kl.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/loss/any_loss.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/entropy_bonus.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/trainer/streaming.hpp>

using namespace rlalgo;
using advantage::GroupRelative, advantage::Scale;

namespace {

using PerToken = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount>;
using PerRow = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::SequenceMean>;

template <class L, class A, class G>
std::string refusal(const L& loss, const A& estimator, const G& aggregation) {
  try {
    trainer::require_streamable(loss, estimator, aggregation);
  } catch (const core::Error& e) {
    CHECK(std::string(e.what()).find("[rlalgo.trainer.27]") != std::string::npos);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("methods whose advantages stay within groups are streamed; erased, they are the same") {
  const aggregation::SumThenNormalize sum;
  const PerToken loss({});
  CHECK(refusal(loss, GroupRelative<>(), sum).empty());
  CHECK(refusal(loss, GroupRelative<Scale::none>(), sum).empty());
  CHECK(refusal(loss, advantage::LeaveOneOut(), aggregation::SumMinusKl()).empty());
  CHECK(refusal(loss, advantage::PassThrough(), sum).empty());
  const std::string batch = "advantages are of the whole batch";
  CHECK(refusal(loss, GroupRelative<Scale::batch>(), sum).find(batch) != std::string::npos);
  CHECK(refusal(loss, advantage::LeaveOneOut({.normalize = true}), sum).find(batch) != std::string::npos);
  CHECK(refusal(loss, advantage::BatchWhitened(), sum).find(batch) != std::string::npos);
  CHECK(refusal(loss, GroupRelative<>(), aggregation::NormalizeThenSum()).find(batch) != std::string::npos);
  using advantage::AnyEstimator;
  using Any = aggregation::AnyAggregation<AnyEstimator>;
  CHECK(refusal(loss, AnyEstimator(GroupRelative<>()), Any(sum)).empty());
  CHECK_FALSE(refusal(loss, AnyEstimator(GroupRelative<Scale::batch>()), Any(sum)).empty());
  CHECK_FALSE(refusal(loss, AnyEstimator(GroupRelative<>()), Any(aggregation::NormalizeThenSum())).empty());
}

TEST_CASE("losses with one denominator are streamed, those with several are not") {
  const aggregation::SumThenNormalize sum;
  CHECK(refusal(PerRow({}), GroupRelative<>(), sum).empty());
  CHECK(refusal(loss::AnyLossLike<PerToken>(PerToken({})), GroupRelative<>(), sum).empty());
  CHECK(refusal(loss::EntropyBonus<PerToken>({}), GroupRelative<>(), sum).find("denominators") != std::string::npos);
}

TEST_CASE("a gradient made with an assumed number of tokens becomes that of the actual one") {
  const loss::Counts assumed{.rows = 8, .tokens = 16, .micro_batches = 2}, actual{.rows = 8, .tokens = 40};
  CHECK(trainer::rescaling(PerToken({}), assumed, actual) == 0.4);
  CHECK(trainer::rescaling(loss::AnyLossLike<PerToken>(PerToken({})), assumed, actual) == 0.4);
  CHECK(trainer::rescaling(PerRow({}), assumed, actual) == 1.0);
  CHECK(trainer::rescaling(PerRow({}), assumed, {.rows = 20, .tokens = 40}) == 0.4);  // episodes of several rows
  CHECK(trainer::rescaling(PerToken({}), assumed, {.rows = 20, .tokens = 16}) == 1.0);
  CHECK(trainer::rescaling(PerToken({}), assumed, {}) == 16.0);  // no tokens: divided by 1, as the loss does
  support::Bandit bandit(3), untouched(2);
  bandit.logits.sum().backward();
  auto parameters = bandit.parameters();
  parameters.push_back(untouched.parameters().front());  // without a gradient
  trainer::scale_gradients(parameters, 0.4);
  CHECK(bandit.logits.grad()[1].item<float>() == 0.4F);
}
