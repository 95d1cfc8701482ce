#include <loss/scored_batch.hpp>

#include <rlalgo/loss/fixed_length.hpp>

namespace {
using namespace scored_batch;
using rlalgo::loss::FixedLength;

// Losses per token; the last two carry none.
const std::vector<double> losses = {1, 2, 3, 4, 5, 7, 100, 100};
}  // namespace

TEST_CASE("the fixed length divides by rows × the longest completion allowed") {
  STATIC_REQUIRE(rlalgo::loss::Reduction<FixedLength>);
  const Scored s = two_rows();
  const Counts counts{.rows = 10, .tokens = 40, .micro_batches = 5};
  // 22 / (10·8)
  CHECK(FixedLength({.max_completion_length = 8})(column(losses), s, counts).item<double>() ==
        Approx(0.275).epsilon(1e-14));
  CHECK(FixedLength()(column(losses), s, counts).item<double>() == Approx(22.0 / 5120).epsilon(1e-14));
}
