#include <cstdint>

#include <support/catch.hpp>
#include <support/table_generator.hpp>

#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/rollouts.hpp>

using namespace rlalgo;

namespace {
struct Pairs {
  struct Batch {};
  static constexpr loss::RowKind rows = loss::RowKind::pairs;
  static constexpr bool generates = false;
  Batch next(std::int64_t) { return {}; }
  nlohmann::ordered_json state() const { return {}; }
  void restore(const nlohmann::ordered_json&) {}
};
struct NoRows : Pairs {
  static constexpr int rows = 0;
};
struct WrongBatch : Pairs {
  struct Batch {};
};
}  // namespace

TEST_CASE("what is a sampler, and what is not") {
  STATIC_REQUIRE(sampler::Sampler<Pairs>);
  STATIC_REQUIRE(sampler::Sampler<sampler::Rollouts<rlalgo::support::TableGenerator>>);
  STATIC_REQUIRE_FALSE(sampler::Sampler<NoRows>);
  STATIC_REQUIRE_FALSE(sampler::Sampler<WrongBatch>);
}
