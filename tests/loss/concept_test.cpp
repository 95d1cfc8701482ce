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

TEST_CASE("needs are joined, counts are exchanged, field by field: no field can be forgotten") {
  using namespace rlalgo::loss;
  for (const auto field : needs_fields) {
    Needs one;
    one.*field = true;
    CHECK((one | Needs{}) == one);
    CHECK((Needs{} | one) == one);
    for (const auto other : needs_fields) CHECK(((one | Needs{}).*other) == (other == field));
  }
  Counts counts;
  double next = 1;
  for (const auto field : counts_fields) counts.*field = next++;
  CHECK(counts.rows == 1);
  CHECK(counts.mismatched_log_ratio == static_cast<double>(counts_fields.size()));
}
