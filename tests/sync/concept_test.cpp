#include <cstdint>

#include <support/catch.hpp>
#include <support/table_generator.hpp>

#include <rlalgo/inference/any_generator.hpp>
#include <rlalgo/sync/any_sync.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/shared_weights.hpp>

using namespace rlalgo;
using inference::WeightSource;

namespace {
struct Pushes {
  static constexpr bool reaches(WeightSource source) { return source == WeightSource::remote; }
  sync::Published publish(std::int64_t version) { return {version, sync::Published::Status::sent, 8, 0.5}; }
  std::function<std::int64_t()> version_source() const {
    return [] { return std::int64_t{1}; };
  }
};
struct SaysNothing : Pushes {
  void publish(std::int64_t) {}
};
struct Unasked : Pushes {
  std::function<std::int64_t()> version_source() const = delete;
};
struct OfAServer : support::TableGenerator {
  using TableGenerator::TableGenerator;
  static constexpr WeightSource weights = WeightSource::remote;
};
}  // namespace

TEST_CASE("what is a sync policy, and which generator it reaches") {
  STATIC_REQUIRE(sync::SyncPolicy<Pushes>);
  STATIC_REQUIRE_FALSE(sync::SyncPolicy<SaysNothing>);
  STATIC_REQUIRE_FALSE(sync::SyncPolicy<Unasked>);
  STATIC_REQUIRE(sync::SyncPolicyFor<Pushes, OfAServer>);
  STATIC_REQUIRE_FALSE(sync::SyncPolicyFor<Pushes, support::TableGenerator>);
  STATIC_REQUIRE_FALSE(sync::SyncPolicyFor<sync::SharedWeights, OfAServer>);
  STATIC_REQUIRE_FALSE(sync::SyncPolicyFor<sync::SharedWeights, inference::AnyGenerator>);
  STATIC_REQUIRE(sync::SyncPolicyFor<sync::AnySync, inference::AnyGenerator>);
  STATIC_REQUIRE(sync::Pairing<Pushes, OfAServer>::fits);
}

TEST_CASE("where only the run knows generator and policy, the run checks them") {
  OfAServer far(std::vector<std::vector<data::Completion>>{});
  support::TableGenerator near(std::vector<std::vector<data::Completion>>{});
  const inference::AnyGenerator any_far(far), any_near(near);
  CHECK_NOTHROW(sync::require_reach(sync::AnySync(Pushes()), any_far));
  CHECK_NOTHROW(sync::require_reach(sync::AnySync(sync::SharedWeights()), any_near));
  CHECK_NOTHROW(sync::require_reach(sync::SharedWeights(), near));
  CHECK_THROWS_WITH(sync::require_reach(sync::AnySync(sync::SharedWeights()), any_far),
                    Catch::Contains("[rlalgo.sync.3]"));
  CHECK_THROWS_WITH(sync::require_reach(sync::AnySync(Pushes()), any_near), Catch::Contains("[rlalgo.sync.3]"));
}
