#include <support/catch.hpp>

#include <memory>

#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/sync/snapshot_weights.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using sync::SnapshotWeights;

TEST_CASE("a publish copies the weights once per version") {
  model::HfConfig hf;
  hf.decoder = reference::tiny();
  model::Decoder decoder(hf, reference::random_weights(hf.decoder, 2));
  decoder.set_trained(true);
  const auto snapshots = std::make_shared<inference::WeightSnapshots>(decoder.config(), decoder.weights());
  SnapshotWeights policy(snapshots);
  STATIC_REQUIRE(sync::SyncPolicyFor<sync::SnapshotWeights, inference::SnapshotEngine>);
  STATIC_REQUIRE_FALSE(sync::SyncPolicyFor<sync::SnapshotWeights, inference::LocalEngine>);
  const auto source = policy.version_source();
  CHECK(source() == -1);
  const sync::Published published = policy.publish(0);
  CHECK(published.status == sync::Published::Status::copied);
  CHECK(published.bytes == static_cast<std::int64_t>(snapshots->copied_bytes()));
  CHECK(published.bytes > 0);
  CHECK(source() == 0);
  CHECK(policy.version() == 0);
  const auto first = snapshots->acquire();
  CHECK(policy.publish(0).status == sync::Published::Status::unchanged);
  CHECK(snapshots->acquire()->number == first->number);
  sync::SnapshotWeights moved = policy;
  moved.publish(7);
  CHECK(source() == 7);
  CHECK(snapshots->acquire()->version == 7);
}
