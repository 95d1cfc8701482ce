#include <rlalgo/loss/with_cross_entropy.hpp>

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <support/catch.hpp>

#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/reinforce.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>

using namespace rlalgo;

namespace {

using Score = loss::PolicyGradient<loss::Reinforce, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount>;
using Grpo = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::SequenceMean>;

// Two rows of two generated tokens, and an answer of three tokens beside the first.
struct Batch {
  at::Tensor log_prob = at::tensor({-.5, -1., -2., -.25, -3., -4., -5.}, at::kDouble).requires_grad_(true);
  loss::Scored scored{.log_prob = log_prob,
                      .mask = at::tensor({1., 1., 1., 1., 0., 0., 0.}, at::kDouble),
                      .row = at::tensor({0, 0, 1, 1, 0, 0, 0}, at::kLong),
                      .row_length = at::tensor({2., 2.}, at::kDouble),
                      .advantage = at::tensor({1., -2.}, at::kDouble),
                      .likelihood_mask = at::tensor({0., 0., 0., 0., 1., 1., 1.}, at::kDouble)};
  loss::Counts counts{.rows = 2, .tokens = 4, .micro_batches = 1, .likelihood_tokens = 3};
};

}  // namespace

TEST_CASE("policy loss and cross-entropy by hand") {
  Batch b;
  const loss::WithCrossEntropy<Score> loss({.policy = 2.0, .cross_entropy = 0.5, .prefix = "x/"}, Score({}));
  const loss::Result result = loss(b.scored, b.counts);
  const double rl = -(1. * (-.5 - 1.) - 2. * (-2. - .25)) / 4, ce = 12. / 3;
  CHECK(result.metrics.value("x/rl_loss") == Approx(rl));
  CHECK(result.metrics.value("x/ce_loss") == Approx(ce));
  CHECK(result.value.item<double>() == Approx(2 * rl + .5 * ce));
  result.value.backward();
  const std::vector<double> expected = {-.5, -.5, 1., 1., -.5 / 3, -.5 / 3, -.5 / 3};
  for (std::int64_t i = 0; i < 7; ++i) CHECK(b.log_prob.grad()[i].item<double>() == Approx(expected[i]));
}

TEST_CASE("a weight of 0 leaves the likelihood out of the gradient, and it is told still") {
  Batch b;
  const loss::Result result = loss::WithCrossEntropy<Score>({}, Score({}))(b.scored, b.counts);
  CHECK(result.metrics.value("ce_loss") == Approx(4.));
  CHECK(result.value.item<double>() == Approx(result.metrics.value("rl_loss")));
  result.value.backward();
  CHECK(b.log_prob.grad()[5].item<double>() == 0.0);
}

TEST_CASE("any loss over completions can be the policy's, and does not see answers") {
  Batch with, without;
  without.scored.likelihood_mask = at::Tensor();
  const Grpo grpo({});
  const loss::WithCrossEntropy<Grpo> loss({.cross_entropy = 1.0}, grpo);
  Batch far;
  {
    const c10::AutoGradMode no_gradient(false);
    far.log_prob.slice(0, 4).mul_(100);
  }
  const double expected = grpo(without.scored, without.counts).value.item<double>();
  CHECK(loss(with.scored, with.counts).metrics.value("rl_loss") == Approx(expected));
  CHECK(loss(far.scored, far.counts).metrics.value("rl_loss") == Approx(expected));
  CHECK(loss(without.scored, without.counts).value.item<double>() == Approx(expected));
}

TEST_CASE("denominators are those of the step, and metrics add up over its parts") {
  Batch b;
  b.counts = {.rows = 4, .tokens = 8, .micro_batches = 2, .likelihood_tokens = 6};
  const loss::WithCrossEntropy<Score> loss({.cross_entropy = 1.0}, Score({}));
  loss::Result one = loss(b.scored, b.counts);
  const loss::Result two = loss(b.scored, b.counts);
  one.metrics.merge(two.metrics);
  CHECK(one.metrics.value("ce_loss") == Approx(4.));
  CHECK((one.value + two.value).item<double>() == Approx(one.metrics.value("rl_loss") + one.metrics.value("ce_loss")));
}

TEST_CASE("nothing generated and nothing to be trained is 0, not NaN") {
  Batch b;
  b.scored.mask = b.scored.mask * 0;
  b.scored.likelihood_mask = b.scored.likelihood_mask * 0;
  const loss::Result result = loss::WithCrossEntropy<Score>({.cross_entropy = 1.0}, Score({}))(
      b.scored, {.rows = 0, .tokens = 0, .micro_batches = 1, .likelihood_tokens = 0});
  CHECK(result.value.item<double>() == 0.0);
}

static_assert(loss::WithCrossEntropy<Score>::needs.answer_likelihood);
static_assert(loss::Loss<loss::WithCrossEntropy<Score>>);
