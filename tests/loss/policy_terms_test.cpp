#include <loss/scored_batch.hpp>

#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_terms.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;
}  // namespace

TEST_CASE("each part is one thing only") {
  STATIC_REQUIRE_FALSE(RatioLevel<ClippedRatio>);
  STATIC_REQUIRE_FALSE(Surrogate<TokenRatio>);
  STATIC_REQUIRE_FALSE(KlPenalty<SequenceMean>);
  STATIC_REQUIRE_FALSE(Reduction<NoKl>);
}

TEST_CASE("values per row are spread over their tokens, values per token pass") {
  const Scored s = two_rows();
  const PolicyTerms by_row{s, Unit::row, s.log_prob, s.log_prob, column({2, 3}), s.advantage, s.mask};
  check_close(by_row.per_token(by_row.ratio), {2, 2, 2, 2, 3, 3, 3, 3}, 0);
  CHECK(by_row.rows() == 2);
  const PolicyTerms by_token{s, Unit::token, s.log_prob, s.log_prob, s.mask, s.mask, s.mask};
  CHECK(by_token.per_token(s.mask).equal(s.mask));
}
