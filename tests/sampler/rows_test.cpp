#include <support/catch.hpp>

#include <rlalgo/sampler/answer_rows.hpp>
#include <rlalgo/sampler/rollout_rows.hpp>
#include <rlalgo/sampler/rows.hpp>

using namespace rlalgo;

namespace {
struct Uncounted {
  using Row = int;
  static constexpr loss::RowKind kind{"uncounted"};
  static model::TokenTree tree(std::span<const int* const>, const loss::Needs&) { return {}; }
  static loss::Scored collate(std::span<const int* const>, const model::Scores&, const loss::Needs&) { return {}; }
  static std::int64_t tokens(const int&) { return 1; }
};
struct Least : Uncounted {
  static constexpr loss::RowKind kind{"least"};
  static void count(std::span<const int* const>, const loss::Needs&, loss::Counts&) {}
};
}  // namespace

TEST_CASE("a kind of rows is a tree, counts, columns and tokens; all else is a capability of its own") {
  STATIC_REQUIRE(sampler::Rows<Least>);
  STATIC_REQUIRE_FALSE(sampler::Rows<Uncounted>);
  STATIC_REQUIRE_FALSE(sampler::CompletedRows<Least>);
  STATIC_REQUIRE_FALSE(sampler::RememberingRows<Least>);
  STATIC_REQUIRE_FALSE(sampler::BlamedRows<Least>);
  STATIC_REQUIRE_FALSE(sampler::SummarizedRows<Least>);
  STATIC_REQUIRE(sampler::Rows<sampler::RolloutRows>);
  STATIC_REQUIRE_FALSE(sampler::BlamedRows<sampler::RolloutRows>);
  STATIC_REQUIRE(sampler::Rows<sampler::PairRows>);
  STATIC_REQUIRE(sampler::Rows<sampler::UnpairedRows>);
  STATIC_REQUIRE_FALSE(sampler::IdleRows<sampler::PairRows>);
}

TEST_CASE("kinds are told apart by name; a kind of one's own is one more") {
  STATIC_REQUIRE(loss::RowKind(Least::kind) != loss::RowKind(Uncounted::kind));
  STATIC_REQUIRE(sampler::PairRows::kind.unit == 2);
  STATIC_REQUIRE(Least::kind.unit == 1);
}
