#include <loss/scored_batch.hpp>

#include <rlalgo/loss/global_token_count.hpp>

namespace {
using namespace scored_batch;
using rlalgo::loss::GlobalTokenCount;

// Losses per token; the last two carry none.
const std::vector<double> losses = {1, 2, 3, 4, 5, 7, 100, 100};
}  // namespace

TEST_CASE("the global token count divides by the tokens of the whole step") {
  STATIC_REQUIRE(rlalgo::loss::Reduction<GlobalTokenCount>);
  const Scored s = two_rows();
  const Counts counts{.rows = 10, .tokens = 40, .micro_batches = 5};
  CHECK(GlobalTokenCount()(column(losses), s, counts).item<double>() == Approx(22.0 / 40).epsilon(1e-14));
  CHECK(GlobalTokenCount()(column(losses), s, {}).item<double>() == Approx(22.0).epsilon(1e-14));
}
