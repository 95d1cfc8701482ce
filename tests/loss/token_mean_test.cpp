#include <loss/scored_batch.hpp>

#include <rlalgo/loss/token_mean.hpp>

namespace {
using namespace scored_batch;
using rlalgo::loss::TokenMean;

// Losses per token; the last two carry none.
const std::vector<double> losses = {1, 2, 3, 4, 5, 7, 100, 100};
}  // namespace

TEST_CASE("the token mean divides by the tokens of its own micro-batch") {
  STATIC_REQUIRE(rlalgo::loss::Reduction<TokenMean>);
  const Scored s = two_rows();
  const Counts counts{.rows = 10, .tokens = 40, .micro_batches = 5};
  // 22/6 / 5
  CHECK(TokenMean()(column(losses), s, counts).item<double>() == Approx(22.0 / 30).epsilon(1e-14));
  Scored none = s;
  none.mask = at::zeros_like(s.mask);
  CHECK(TokenMean()(column(losses), none, counts).item<double>() == 0.0);
}
