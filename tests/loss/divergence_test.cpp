#include <loss/pair_batch.hpp>

#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/divergence.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

namespace {

template <class D>
void check_sigmoid(typename D::Config divergence, double first, double second) {
  const auto loss = [&](double beta) {
    return DirectPreference<Sigmoid, D>({.beta = beta, .objective = {}, .divergence = divergence});
  };
  check_relative(value(loss(0.1), pairs({p1})), first);
  check_relative(value(loss(0.5), pairs({p2})), second);
  check_gradient(loss(0.1), batch(pairs({p1, p2, third})));
  check_invariance(loss(0.1), batch(pairs({p1, p2, third})));
}

double score(const auto& divergence, double r) {
  return divergence(at::tensor({r}, at::kDouble)).template item<double>();
}

}  // namespace

TEST_CASE("divergences under the sigmoid loss (60-digit arithmetic)") {
  check_sigmoid<ReverseKl>({}, 0.598138869382, 1.60041265160);
  check_sigmoid<ForwardKl>({}, 0.582516713460, 2.21337463208);
  check_sigmoid<JensenShannon>({}, 0.644396660074, 1.11978609018);
  check_sigmoid<AlphaDivergence>({.alpha = 0.5}, 0.594349122972, 1.76873030890);
  check_sigmoid<AlphaDivergence>({.alpha = 2.0}, 0.582516713460, 1.81194022048);
}

TEST_CASE("scores carry the constant of f': 0 where the policy equals the reference") {
  CHECK(score(ForwardKl(), 0.0) == 0.0);
  CHECK(score(JensenShannon(), 0.0) == Approx(0.0).margin(1e-15));
  CHECK(score(AlphaDivergence({.alpha = 0.5}), 0.0) == 0.0);
  check_relative(score(ForwardKl(), 1.0), 1 - 0.367879441171);
  check_relative(score(JensenShannon(), -1.5), 0.693147180560 - 1.70141327798);
  check_relative(score(AlphaDivergence({.alpha = 0.5}), 1.0), 2 - 1.21306131943);
  check_relative(score(AlphaDivergence({.alpha = 1.0}), 0.7), 0.7);
}

TEST_CASE("the exponent of the alpha divergence is capped, so scores stay finite") {
  const double capped = score(AlphaDivergence({.alpha = 0.5}), -200.0);  // −2(e^80 − 1)
  check_relative(capped, -1.10812447688e35);
  CHECK(score(AlphaDivergence({.alpha = 0.5}), -5000.0) == capped);
}

TEST_CASE("rewards are log-ratios whatever the divergence") {
  const Scored s = batch(pairs({p1}));
  const auto metrics = DirectPreference<Sigmoid, ForwardKl>({.beta = 0.1})(s, counts_of(s)).metrics;
  CHECK(metrics.value("rewards/chosen") == Approx(0.1));
  CHECK(metrics.value("rewards/rejected") == Approx(-0.1));
}

TEST_CASE("a divergence chosen at run time is the one named") {
  CHECK(score(AnyDivergence(), 1.25) == 1.25);
  CHECK(score(AnyDivergence(ForwardKl()), 1.0) == score(ForwardKl(), 1.0));
}
