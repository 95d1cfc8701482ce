#include <rlalgo/config/sharding.hpp>

#include <memory>
#include <string>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/model/load.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/process_ranks.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using config::RunConfig;
using config::Sharding;
using distributed::World;

namespace {

RunConfig parse(const std::string& more, int ranks) {
  return config::parse_run_config(
      config::parse_document("base_model: ./m\nrl: dpo\ndatasets: [{path: rows.jsonl}]\nlearning_rate: 1e-6\n" + more,
                             "c.yaml"),
      ranks);
}

}  // namespace

TEST_CASE("nothing is sharded on one rank, or where nobody asked for it") {
  CHECK(Sharding::convene(parse("fsdp_config: {reshard_after_forward: true}\n", 1), std::make_shared<World>()) ==
        nullptr);
  support::with_ranks(
      2, [](const std::shared_ptr<World>& world) { RANK_CHECK(Sharding::convene(parse("", 2), world) == nullptr); });
}

TEST_CASE("ranks beside each other share a model, and those of the same place have the same shards") {
  support::with_ranks(4, [](const std::shared_ptr<World>& world) {
    const RunConfig c = parse("fsdp_config: {reshard_after_forward: false}\ndp_shard_size: 2\n", 4);
    const auto sharding = Sharding::convene(c, world);
    const std::shared_ptr<model::Decoder> policy =
        model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 7);
    sharding->hold(*policy);
    RANK_CHECK(sharding->weights());
    RANK_CHECK(!sharding->policy()->config().reshard_after_forward);
    RANK_CHECK(sharding->policy()->team().rank() == world->rank() % 2);
    RANK_CHECK(sharding->policy()->replicas().rank() == world->rank() / 2);
    const auto copy = sharding->reference(*policy);
    RANK_CHECK(copy->parameters().empty());
    RANK_CHECK(!sharding->placement()->parameters().empty());
    sharding->placement()->require_same_start();
  });
}
