#include <cstdint>

#include <support/catch.hpp>
#include <support/table_generator.hpp>

#include <rlalgo/loss/cross_entropy.hpp>
#include <rlalgo/loss/odds_ratio.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/preferences.hpp>
#include <rlalgo/sampler/rollouts.hpp>

using namespace rlalgo;

namespace {
struct Recorded {  // completions from a file: no rewards, no generator, no end
  using Rows = sampler::RolloutRows;
  sampler::Batch<data::Episode> next(std::int64_t) { return {}; }
  nlohmann::ordered_json state() const { return {}; }
  void restore(const nlohmann::ordered_json&) {}
};
struct Judged : Recorded {
  sampler::RolloutBatch next(std::int64_t) { return {}; }
};
struct OtherRows : Recorded {
  sampler::Batch<data::Answer> next(std::int64_t) { return {}; }
};
struct NoRows : Recorded {
  using Rows = int;
};
using Rollouts = sampler::Rollouts<rlalgo::support::TableGenerator>;
}  // namespace

TEST_CASE("what is a sampler, and what is not") {
  STATIC_REQUIRE(sampler::Sampler<Recorded>);
  STATIC_REQUIRE(sampler::Sampler<Rollouts>);
  STATIC_REQUIRE(sampler::Sampler<sampler::Pairs>);
  STATIC_REQUIRE_FALSE(sampler::Sampler<NoRows>);
  STATIC_REQUIRE_FALSE(sampler::Sampler<OtherRows>);
}

TEST_CASE("rewards, a generator and an end are separate") {
  STATIC_REQUIRE_FALSE(sampler::Rewarded<Recorded>);
  STATIC_REQUIRE(sampler::Rewarded<Judged>);
  STATIC_REQUIRE(sampler::Rewarded<Rollouts>);
  STATIC_REQUIRE_FALSE(sampler::Rewarded<sampler::Pairs>);
  STATIC_REQUIRE_FALSE(sampler::Generates<Judged>);
  STATIC_REQUIRE(sampler::Generates<Rollouts>);
  STATIC_REQUIRE_FALSE(sampler::Finite<Judged>);
  STATIC_REQUIRE(sampler::Finite<sampler::Pairs>);
  STATIC_REQUIRE(sampler::SameRows<loss::CrossEntropy, Recorded>);
  STATIC_REQUIRE(sampler::SameRows<loss::OddsRatio, sampler::Pairs>);
  STATIC_REQUIRE_FALSE(sampler::SameRows<loss::OddsRatio, sampler::UnpairedAnswers>);
}
