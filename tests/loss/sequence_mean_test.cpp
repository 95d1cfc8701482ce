#include <loss/scored_batch.hpp>

#include <rlalgo/loss/sequence_mean.hpp>

namespace {
using namespace scored_batch;
using rlalgo::loss::SequenceMean;

// Losses per token; the last two carry none.
const std::vector<double> losses = {1, 2, 3, 4, 5, 7, 100, 100};
}  // namespace

TEST_CASE("the sequence mean averages each completion's token mean over all rows of the step") {
  STATIC_REQUIRE(rlalgo::loss::Reduction<SequenceMean>);
  const Scored s = two_rows();
  const Counts counts{.rows = 10, .tokens = 40, .micro_batches = 5};
  // (10/4 + 12/2) / 10
  CHECK(SequenceMean()(column(losses), s, counts).item<double>() == Approx(0.85).epsilon(1e-14));
  CHECK(SequenceMean()(column(losses), s, {}).item<double>() == Approx(8.5).epsilon(1e-14));
}
