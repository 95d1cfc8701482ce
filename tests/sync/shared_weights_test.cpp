#include <cstdint>
#include <utility>

#include <support/catch.hpp>

#include <rlalgo/sync/shared_weights.hpp>

using rlalgo::sync::SharedWeights;

static_assert(rlalgo::sync::SyncPolicy<SharedWeights>);
static_assert(SharedWeights::reaches(rlalgo::inference::WeightSource::shared));
static_assert(!SharedWeights::reaches(rlalgo::inference::WeightSource::remote));

TEST_CASE("publishing a version tells the generator once that its caches are stale") {
  int stale = 0;
  SharedWeights sync([&] { ++stale; });
  CHECK(sync.version() == -1);
  using Status = rlalgo::sync::Published::Status;
  CHECK(sync.publish(0).status == Status::in_place);
  CHECK(stale == 1);
  CHECK(sync.publish(0).status == Status::unchanged);
  CHECK(stale == 1);
  sync.publish(1);
  CHECK(stale == 2);
  CHECK(sync.version() == 1);
}

TEST_CASE("the generator is told when training begins, if it wants to know") {
  int released = 0;
  SharedWeights sync([] {}, [&] { ++released; });
  sync.publish(0);
  CHECK(released == 0);
  sync.training_begins();
  CHECK(released == 1);
  CHECK(sync.version() == 0);
  SharedWeights().training_begins();
}

TEST_CASE("the version source follows the policy into its trainer") {
  SharedWeights sync;
  const auto version = sync.version_source();
  SharedWeights inside_the_trainer = std::move(sync);
  inside_the_trainer.publish(7);
  CHECK(version() == 7);
}
