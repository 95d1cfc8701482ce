#include <rlalgo/sync/any_sync.hpp>

#include <support/catch.hpp>

#include <rlalgo/sync/no_sync.hpp>
#include <rlalgo/sync/shared_weights.hpp>

using namespace rlalgo;

TEST_CASE("any policy behind one type: copies share it") {
  int changes = 0;
  sync::AnySync first(sync::SharedWeights([&] { ++changes; }));
  const auto version = first.version_source();
  sync::AnySync second = first;
  CHECK(version() == -1);
  second.publish(3);
  CHECK(version() == 3);
  CHECK(changes == 1);
  CHECK(first.publish(3).status == sync::Published::Status::unchanged);
  int released = 0;
  sync::AnySync third(sync::SharedWeights([] {}, [&] { ++released; }));
  third.training_begins();
  CHECK(released == 1);
  sync::AnySync(sync::NoSync()).training_begins();  // does not care
  CHECK(first.serves(inference::WeightSource::shared));
  CHECK_FALSE(first.serves(inference::WeightSource::remote));
}
