#include <support/catch.hpp>

#include <rlalgo/loss/concept.hpp>

namespace {
struct SumOfLogProbs {
  struct Config {};
  static constexpr rlalgo::loss::Needs needs{};
  static constexpr rlalgo::loss::RowKind rows = rlalgo::loss::RowKind::samples;
  rlalgo::loss::Result operator()(const rlalgo::loss::Scored& s, const rlalgo::loss::Counts&) const {
    return {s.log_prob.sum(), {}};
  }
};
struct NoNeeds {
  struct Config {};
};
}  // namespace

TEST_CASE("a pure function with needs and rows is a loss, anything less is not") {
  STATIC_REQUIRE(rlalgo::loss::Loss<SumOfLogProbs>);
  STATIC_REQUIRE_FALSE(rlalgo::loss::Loss<NoNeeds>);
}
