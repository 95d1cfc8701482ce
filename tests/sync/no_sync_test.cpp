#include <support/catch.hpp>

#include <rlalgo/sync/no_sync.hpp>

namespace {
struct OverData {
  static constexpr bool generates = false;
};
struct OverRollouts {
  static constexpr bool generates = true;
};
}  // namespace

TEST_CASE("NoSync fits samplers that generate nothing, and no other") {
  STATIC_REQUIRE(rlalgo::sync::SyncPolicyFor<rlalgo::sync::NoSync, OverData>);
  STATIC_REQUIRE_FALSE(rlalgo::sync::SyncPolicyFor<rlalgo::sync::NoSync, OverRollouts>);
}
