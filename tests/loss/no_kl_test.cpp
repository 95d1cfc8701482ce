#include <loss/scored_batch.hpp>

#include <rlalgo/loss/no_kl.hpp>

using namespace scored_batch;

TEST_CASE("no KL penalty changes nothing and needs no reference") {
  using rlalgo::loss::NoKl;
  STATIC_REQUIRE(rlalgo::loss::KlPenalty<NoKl>);
  STATIC_REQUIRE_FALSE(NoKl::needs_reference);
  const Scored s = two_rows();
  const rlalgo::loss::PolicyTerms terms{s,     rlalgo::loss::Unit::token, s.log_prob, s.log_prob, s.log_prob, s.mask,
                                        s.mask};
  rlalgo::loss::Metrics metrics;
  CHECK(NoKl()(s.log_prob, terms, metrics).equal(s.log_prob));
  CHECK(metrics.read().empty());
}
