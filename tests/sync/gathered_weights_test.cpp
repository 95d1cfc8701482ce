#include <rlalgo/sync/gathered_weights.hpp>

#include <string>

#include <rlalgo/sync/any_sync.hpp>
#include <rlalgo/sync/shared_weights.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("weights are made whole before every publish, and what moved is told") {
  std::string calls;
  bool whole = false;
  sync::GatheredWeights sync(
      sync::SharedWeights([&] { calls += "new "; }, [&] { calls += "train "; }),
      [&] {
        calls += "gather ";
        return !std::exchange(whole, true);
      },
      [&] { calls += "moved "; });
  static_assert(decltype(sync)::reaches(inference::WeightSource::shared));
  static_assert(!decltype(sync)::reaches(inference::WeightSource::remote));
  const auto version = sync.version_source();
  CHECK(sync.publish(1).status == sync::Published::Status::in_place);
  CHECK(calls == "gather moved new ");
  CHECK(sync.publish(1).status == sync::Published::Status::unchanged);
  CHECK(calls == "gather moved new gather ");
  whole = false;  // training went on
  CHECK(sync.publish(1).version == 1);
  CHECK(calls == "gather moved new gather gather moved ");
  CHECK(version() == 1);
  sync.training_begins();
  CHECK(calls.ends_with("moved train "));
  CHECK(sync::AnySync(sync).serves(inference::WeightSource::shared));
}
