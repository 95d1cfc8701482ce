#include <rlalgo/assembly/sharding.hpp>

#include <memory>
#include <string>

#include <rlalgo/model/load.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/process_ranks.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using assembly::Sharding;
using distributed::World;

TEST_CASE("nothing is sharded on one rank") { CHECK(Sharding::convene({}, std::make_shared<World>()) == nullptr); }

TEST_CASE("neighbouring ranks share a model, and those of the same place have the same shards") {
  support::with_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto sharding = Sharding::convene({.config = {.reshard_after_forward = false}, .shard_size = 2}, world);
    const std::shared_ptr<model::Decoder> policy =
        model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 7);
    sharding->hold(*policy);
    RANK_CHECK(sharding->weights());
    RANK_CHECK(!sharding->policy()->config().reshard_after_forward);
    RANK_CHECK(sharding->policy()->team().rank() == world->rank() % 2);
    const auto copy = sharding->reference(*policy);
    RANK_CHECK(copy->parameters().empty());
    RANK_CHECK(!sharding->placement()->parameters().empty());
    sharding->placement()->require_same_start();
  });
}

TEST_CASE("a rank has a file of its own where that is asked for") {
  support::with_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto sharding = Sharding::convene({.file_of_each = true}, world);
    const std::shared_ptr<model::Decoder> policy =
        model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 7);
    sharding->hold(*policy);
    RANK_CHECK(sharding->files() == 2);
  });
}
