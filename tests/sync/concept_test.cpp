#include <cstdint>

#include <support/catch.hpp>

#include <rlalgo/sync/concept.hpp>

using namespace rlalgo;

namespace {
struct Pushes {
  static constexpr bool serves_generator = true;
  void publish(std::int64_t) {}
};
struct Silent {
  static constexpr bool serves_generator = false;
  void publish(std::int64_t) {}
};
struct Returns {
  static constexpr bool serves_generator = true;
  bool publish(std::int64_t) { return true; }
};
struct OverData {
  static constexpr bool generates = false;
};
struct OverRollouts {
  static constexpr bool generates = true;
};
}  // namespace

TEST_CASE("what is a sync policy, and which sampler it fits") {
  STATIC_REQUIRE(sync::SyncPolicy<Pushes>);
  STATIC_REQUIRE_FALSE(sync::SyncPolicy<Returns>);
  STATIC_REQUIRE(sync::SyncPolicyFor<Pushes, OverRollouts>);
  STATIC_REQUIRE(sync::SyncPolicyFor<Pushes, OverData>);
  STATIC_REQUIRE(sync::SyncPolicyFor<Silent, OverData>);
  STATIC_REQUIRE_FALSE(sync::SyncPolicyFor<Silent, OverRollouts>);
}
