#include <loss/pair_batch.hpp>

#include <rlalgo/loss/chosen_likelihood.hpp>
#include <rlalgo/loss/direct_preference.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

TEST_CASE("sft is the token mean over the chosen completions of the step") {
  // Completions with negative log-likelihoods 2 and 0.5 + 0.25 + 0.75.
  const DirectPreference<ChosenLikelihood> loss({.beta = 0.1});
  const std::vector<Row> rows = {{-2, -1, 1}, {-4, -3, 2}, {-1.5, -1, 3}, {-3, -3, 5}};
  check_relative(value(loss, rows), 3.5 / 4);
  const auto slope = slopes(loss, rows);
  CHECK(slope[0] == Approx(-0.25));
  CHECK(slope[1] == 0.0);
  CHECK(slope[2] == Approx(-0.25));
  check_invariance(loss, batch(rows));
}
