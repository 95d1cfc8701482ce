#include <support/catch.hpp>
#include <support/table_generator.hpp>

#include <rlalgo/sync/no_sync.hpp>

using namespace rlalgo;

TEST_CASE("NoSync is a policy that reaches no generator") {
  STATIC_REQUIRE(sync::SyncPolicy<sync::NoSync>);
  STATIC_REQUIRE_FALSE(sync::SyncPolicyFor<sync::NoSync, support::TableGenerator>);
  sync::NoSync none;
  const sync::Published published = none.publish(3);
  CHECK(published.status == sync::Published::Status::unchanged);
  CHECK(published.bytes == 0);
}
