#include <loss/pair_batch.hpp>

#include <rlalgo/loss/contrastive.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/loss/squared_objectives.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

namespace {

using Cpo = Contrastive<MarginSigmoid, SummedLogProb>;
using SimPo = Contrastive<MarginSigmoid, MeanLogProb>;

// The preference term alone; rewards are checked with it.
template <class L>
void check_golden(const typename L::Config& config, const std::vector<Row>& rows, double expected, double chosen,
                  double rejected) {
  typename L::Config alone = config;
  alone.likelihood_weight = 0.0;
  const Scored s = batch(rows);
  const Result r = L(alone)(s, counts_of(s));
  check_relative(r.value.template item<double>(), expected);
  check_relative(r.metrics.value("rewards/chosen"), chosen);
  check_relative(r.metrics.value("rewards/rejected"), rejected);
  CHECK(r.metrics.value("nll_loss") == 0.0);
  typename L::Config both = config;
  both.likelihood_weight = 1.0;
  const Result total = L(both)(s, counts_of(s));
  const double nll = -rows[0].policy / static_cast<double>(rows[0].tokens);
  check_relative(total.value.template item<double>(), expected + nll);
  CHECK(total.metrics.value("nll_loss") == Approx(nll));
}

}  // namespace

TEST_CASE("cpo: golden rows (60-digit arithmetic)") {
  const auto first = pairs({p1}), second = pairs({p2});
  check_golden<Cpo>({.beta = .1}, first, 0.554355244469, -1.2, -1.5);
  check_golden<Cpo>({.beta = .1, .objective = {.label_smoothing = .1}}, first, 0.584355244469, -1.2, -1.5);
  check_golden<Cpo>({.beta = .5}, second, 1.40615013625, -10.25, -9.125);
  check_golden<Cpo>({.beta = .1}, {{-40, 0, 4}, {-540, 0, 6}}, 1.92874984796e-22, -4, -54);
  check_golden<Cpo>({.beta = .1}, {{-540, 0, 4}, {-40, 0, 6}}, 50, -54, -4);
  check_golden<Contrastive<Hinge, SummedLogProb>>({.beta = .1}, first, 0.7, -1.2, -1.5);
  check_golden<Contrastive<Hinge, SummedLogProb>>({.beta = .1}, {{-540, 0, 4}, {-40, 0, 6}}, 51, -54, -4);
  check_golden<Contrastive<Ipo, MeanLogProb>>({.beta = .1}, first, 30.25, -0.3, -0.25);
  check_golden<Contrastive<Ipo, MeanLogProb>>({.beta = .5}, second, 6.21433673469, -2.05, -1.30357142857);
  check_golden<Cpo>({.beta = .1, .objective = {}, .likelihood_weight = 1, .shape = .25}, first, 1.26624905224e-4,
                    -7.63421476928, -16.6084328000);
}

TEST_CASE("simpo and alphapo: golden rows") {
  const auto first = pairs({p1}), second = pairs({p2});
  check_golden<SimPo>({.beta = .1, .objective = {.gamma = .5}}, first, 1.00549248146, -0.3, -0.25);
  check_golden<SimPo>({.beta = 2.5, .objective = {.gamma = 1.375}}, first, 2.69493619964, -7.5, -6.25);
  check_golden<SimPo>({.beta = 2.5, .objective = {.gamma = 1.375, .label_smoothing = .1}}, first, 2.43243619964, -7.5,
                      -6.25);
  check_golden<SimPo>({.beta = 2.5, .objective = {.gamma = 1.375}}, second, 5.11317796274, -10.25, -6.51785714286);
  check_golden<SimPo>({.beta = 2.5, .objective = {.gamma = 1.375}}, {{-1, 0, 10}, {-413, 0, 20}}, 1.92874984796e-22,
                      -0.25, -51.625);
  check_golden<SimPo>({.beta = 2.5, .objective = {.gamma = 1.375}}, {{-391, 0, 20}, {-1, 0, 10}}, 50, -48.875, -0.25);
  check_golden<SimPo>({.beta = 2.5, .objective = {.gamma = .1}, .likelihood_weight = 0, .shape = .25}, first,
                      2.66005172088, -11.1700001661, -8.68245957432);
  check_golden<SimPo>({.beta = 2.5, .objective = {.gamma = .1}, .likelihood_weight = 0, .shape = .25}, second,
                      8.78146323498, -17.8709546057, -9.18964493571);
}

TEST_CASE("cpo family: gradients and invariance") {
  const Scored s = batch(pairs({p1, p2, third}));
  const Cpo cpo({.beta = .3, .objective = {.label_smoothing = .1}});
  const SimPo alpha({.beta = 2., .objective = {.gamma = .3}, .likelihood_weight = .5, .shape = .25});
  check_gradient(cpo, s);
  check_invariance(cpo, s);
  check_gradient(alpha, s);
  check_invariance(alpha, s);
}
