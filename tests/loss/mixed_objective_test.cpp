#include <loss/pair_batch.hpp>

#include <rlalgo/loss/alignment_by_transport.hpp>
#include <rlalgo/loss/chosen_likelihood.hpp>
#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/loss/mixed_objective.hpp>
#include <rlalgo/loss/pointwise_objectives.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

TEST_CASE("MPO: 0.8 sigmoid + 0.2 bco_pair + the chosen likelihood") {
  using Mpo = Mixed<Sigmoid, BcoPair, ChosenLikelihood>;
  const DirectPreference<Mpo> loss({.beta = 0.1, .objective = {.objectives = {}, .weights = {0.8, 0.2, 1.0}}});
  // Chosen of P1: −12 over 4 tokens, so the likelihood term is 3.
  const double expected = 0.8 * 0.598138869382 + 0.2 * 1.28879332015 + 3.0;
  check_relative(value(loss, pairs({p1})), expected);
  check_gradient(loss, batch(pairs({p1, p2, third})));
  check_invariance(loss, batch(pairs({p1, p2, third})));

  const DirectPreference<AnyObjective> any(
      {.beta = 0.1, .objective = {.terms = {{Sigmoid(), 0.8}, {BcoPair(), 0.2}, {ChosenLikelihood(), 1.0}}}});
  CHECK(value(any, pairs({p1, p2})) == value(loss, pairs({p1, p2})));
}

TEST_CASE("objectives chosen at run time do not slip past the checks of DirectPreference") {
  using Plain = DirectPreference<AnyObjective, AnyDivergence>;
  const AnyDivergence::Config forward = AnyDivergence(ForwardKl()).config();
  CHECK_NOTHROW(Plain({.objective = {.terms = {{Sigmoid()}}}, .divergence = forward}));
  CHECK_NOTHROW(Plain({.objective = {.terms = {{BcoPair()}, {ApoZero()}}}, .divergence = {}}));
  CHECK_NOTHROW(Plain({.objective = {.terms = {{ApoZero()}}}, .divergence = AnyDivergence(ReverseKl()).config()}));
  CHECK_THROWS_WITH(Plain({.objective = {.terms = {{Sigmoid()}, {ApoZero()}}}, .divergence = forward}),
                    Catch::Contains("[rlalgo.loss.13]") && Catch::Contains("divergence"));
  using Forward = DirectPreference<AnyObjective, ForwardKl>;
  CHECK_THROWS_WITH(Forward({.objective = {.terms = {{ApoZero()}}}}), Catch::Contains("[rlalgo.loss.13]"));
  using Weighted = DirectPreference<AnyObjective, AnyDivergence, PolicyWeighted>;
  CHECK_NOTHROW(Weighted({.objective = {.terms = {{Sigmoid()}}}}));
  CHECK_THROWS_WITH(Weighted({.objective = {.terms = {{Sigmoid()}, {Aot()}}}}),
                    Catch::Contains("[rlalgo.loss.13]") && Catch::Contains("weighted"));
}

TEST_CASE("weights are 1 unless given, and traits are those of all parts") {
  const DirectPreference<Mixed<Sigmoid, Hinge>> loss({.beta = 0.1});
  check_relative(value(loss, pairs({p1})), 0.598138869382 + 0.8);
  CHECK(Mixed<Sigmoid, Hinge>::uses_scores);
  CHECK_FALSE(Mixed<Sigmoid, ApoZero>::uses_scores);
  CHECK_FALSE(Mixed<Sigmoid, Aot>::per_pair);
}
