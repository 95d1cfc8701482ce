#include <loss/scored_batch.hpp>

#include <rlalgo/loss/length_weighted.hpp>

namespace {
using namespace scored_batch;
using rlalgo::loss::LengthWeighted;

// Losses per token; the last two carry none.
const std::vector<double> losses = {1, 2, 3, 4, 5, 7, 100, 100};
}  // namespace

TEST_CASE("length weighting averages the completions' token sums over all rows of the step") {
  STATIC_REQUIRE(rlalgo::loss::Reduction<LengthWeighted>);
  const Scored s = two_rows();
  const Counts counts{.rows = 10, .tokens = 40, .micro_batches = 5};
  // (10 + 12) / 10
  CHECK(LengthWeighted()(column(losses), s, counts).item<double>() == Approx(2.2).epsilon(1e-14));
}
