#include <loss/pair_batch.hpp>

#include <rlalgo/loss/chosen_likelihood.hpp>
#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

namespace {

// Two pairs with one token case: vocabulary 3, logits → label; chosen [2,1,0]→0, [0,1,3]→2, rejected [1,1,1]→1,
// [0,2,0]→0.
Scored token_case() {
  Scored s = batch({{0, 0, 2}, {0, 0, 2}});
  s.log_prob =
      at::tensor({-0.407605964444, -0.169846019556, -1.09861228867, -2.23954476622}, at::kDouble).requires_grad_();
  s.reference_log_prob = s.log_prob.detach().clone();
  s.collision = at::tensor({-0.672280300389, -0.319110900165, -1.09861228867, -0.443113232696}, at::kDouble);
  s.entropy = at::tensor({0.832396, 0.524281, 1.098612, 0.665558}, at::kDouble);
  s.mean_logit = at::tensor({1.0, 4.0 / 3, 1.0, 2.0 / 3}, at::kDouble);
  s.greedy = at::tensor({1., 1., 0., 0.}, at::kDouble);
  return s;
}

}  // namespace

TEST_CASE("dpo: metrics of a batch of two pairs") {
  const Scored s = batch(pairs({p1, p2}));
  const Result r = DirectPreference<Sigmoid>({.beta = 0.1})(s, counts_of(s));
  check_relative(r.value.item<double>(), 0.719104768536);
  CHECK(r.metrics.value("rewards/chosen") == Approx(-0.025));
  CHECK(r.metrics.value("rewards/rejected") == Approx(0.0125));
  CHECK(r.metrics.value("rewards/margins") == Approx(-0.0375));
  CHECK(r.metrics.value("rewards/accuracies") == 0.5);
  CHECK(r.metrics.value("logps/chosen") == Approx(-16.25));
  CHECK(r.metrics.value("logps/rejected") == Approx(-16.625));
}

TEST_CASE("dpo: a tie is not an accurate pair") {
  const Scored s = batch({{-3, -3, 2}, {-3, -3, 2}});
  const Result r = DirectPreference<Sigmoid>({.beta = 0.1})(s, counts_of(s));
  check_relative(r.value.item<double>(), 0.693147180560);
  CHECK(r.metrics.value("rewards/accuracies") == 0.0);
}

TEST_CASE("dpo: ld_alpha") {
  Scored s = batch({{0, 0, 5}, {0, 0, 3}});
  s.log_prob = at::tensor({-1., -2., -.5, -.25, -3., -.7, -1.3, -.9}, at::kDouble).requires_grad_();
  s.reference_log_prob = at::tensor({-1.1, -1.8, -.6, -.45, -2.5, -.6, -1.5, -1.}, at::kDouble);
  for (const auto& [alpha, expected] :
       std::vector<std::pair<double, double>>{{1.0, 0.718459648013}, {0.5, 0.710800297745}, {0.0, 0.703197179727}}) {
    const DirectPreference<Sigmoid> loss({.beta = 0.1, .objective = {}, .divergence = {}, .ld_alpha = alpha});
    check_relative(loss(s, counts_of(s)).value.item<double>(), expected);
    check_gradient(loss, s);
  }
}

TEST_CASE("wpo: pairs weigh by how likely the policy is to write them") {
  const Scored s = token_case();
  const Tensor weight = PolicyWeighted{}(s);
  check_relative(weight.item<double>(), 0.500951415081);
  CHECK_FALSE(weight.requires_grad());
  const DirectPreference<Sigmoid, ReverseKl, PolicyWeighted> loss({.beta = 0.1});
  check_relative(loss(s, counts_of(s)).value.item<double>(), 0.500951415081 * 0.693147180560);
  CHECK(decltype(loss)::needs.collision);
  CHECK_FALSE(DirectPreference<Sigmoid>::needs.collision);
  // Twice the chosen row: above 1, not clamped.
  check_relative(PolicyWeighted{}(take(s, {0, 0})).item<double>(), 1.51276517, 1e-8);
}

TEST_CASE("token metrics: chosen and rejected apart, completion tokens only") {
  const Scored s = token_case();
  const auto m = DirectPreference<ChosenLikelihood>({.beta = 0.1})(s, counts_of(s)).metrics;
  CHECK(m.value("entropy") == Approx(0.780211792282).epsilon(1e-5));
  CHECK(m.value("logits/chosen") == Approx(1.16666666667));
  CHECK(m.value("logits/rejected") == Approx(0.833333333333));
  CHECK(m.value("mean_token_accuracy") == 1.0);
  CHECK(m.value("logps/chosen") == Approx(-0.577451984000));
  CHECK(m.value("logps/rejected") == Approx(-3.33815705489));
  check_relative(value(DirectPreference<ChosenLikelihood>({.beta = 0.1}), {{-0.577451984, 0, 2}, {-1, 0, 1}}),
                 0.288725992);
}
