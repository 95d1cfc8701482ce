#include <support/catch.hpp>

#include <memory>
#include <type_traits>

#include <rlalgo/assembly/layout.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/sync/shared_weights.hpp>

#include <support/decoders.hpp>
#include <support/process_ranks.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;

TEST_CASE("whole weights keep the policy that was drawn with") {
  assembly::Drawn<int, sync::SharedWeights> drawn{.generator = nullptr, .sync = sync::SharedWeights()};
  STATIC_REQUIRE(std::is_same_v<decltype(assembly::Whole().policy<false>(drawn)), sync::SharedWeights>);
  CHECK(assembly::Whole().policy<false>(drawn).publish(0).version == 0);
}

TEST_CASE("the ranks that share sharded weights publish them to a server together") {
  CHECK(assembly::Whole().publishers(std::make_shared<distributed::World>()).sources == nullptr);
  support::with_ranks(2, [](const std::shared_ptr<distributed::World>& world) {
    const auto weights = assembly::Sharding::convene({}, world);
    const auto states =
        assembly::Sharding::convene({.config = {.stage = distributed::ShardStage::optimizer_states}}, world);
    RANK_CHECK(assembly::Sharded{weights}.publishers(world).sources == world);
    RANK_CHECK(assembly::Sharded{states}.publishers(world).sources == nullptr);
  });
}

TEST_CASE("sharded weights are made whole before an engine reads them, and its addresses are told") {
  support::with_ranks(2, [](const std::shared_ptr<distributed::World>& world) {
    const auto sharding = assembly::Sharding::convene({}, world);
    const std::shared_ptr<model::Decoder> policy =
        model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 7);
    sharding->hold(*policy);
    bool moved = false;
    assembly::Drawn<int, sync::SharedWeights> drawn{
        .generator = nullptr, .sync = sync::SharedWeights(), .moved = [&moved] { moved = true; }};
    auto sync = assembly::Sharded{sharding}.policy<false>(drawn);
    RANK_CHECK(sync.publish(0).version == 0);
    RANK_CHECK(moved);
    RANK_CHECK(!sharding->policy()->gather_all());  // they are whole already
    sharding->policy()->release_all();
  });
}
