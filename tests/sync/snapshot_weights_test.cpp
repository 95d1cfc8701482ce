#include <support/catch.hpp>

#include <memory>

#include <rlalgo/model/decoder.hpp>
#include <rlalgo/sync/snapshot_weights.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;

TEST_CASE("a publish copies the weights once per version") {
  model::HfConfig hf;
  hf.decoder = reference::tiny();
  model::Decoder decoder(hf, reference::random_weights(hf.decoder, 2));
  decoder.set_trained(true);
  const auto snapshots = std::make_shared<inference::WeightSnapshots>(decoder.config(), decoder.weights());
  sync::SnapshotWeights sync(snapshots);
  const auto source = sync.version_source();
  CHECK(source() == -1);
  sync.publish(0);
  CHECK(source() == 0);
  CHECK(sync.version() == 0);
  const auto first = snapshots->acquire();
  sync.publish(0);
  CHECK(snapshots->acquire()->number == first->number);
  sync::SnapshotWeights moved = sync;
  moved.publish(7);
  CHECK(source() == 7);
  CHECK(snapshots->acquire()->version == 7);
}
