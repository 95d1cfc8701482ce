#include <rlalgo/trainer/sharded_placement.hpp>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/process_ranks.hpp>
#include <support/scratch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using distributed::PassRounds;
using distributed::ShardedWeights;
using distributed::ShardStage;
using distributed::World;
using tensor::Tensor;

namespace {

std::shared_ptr<model::Decoder> decoder(at::ScalarType type) {
  return model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 7, type);
}

void backward(model::Decoder& policy, int number) {
  const std::vector<std::int32_t> prompt = {1, number % 23}, completion = {4, 5 + number, 6};
  const std::vector<model::Sequence> rows = {{prompt, completion}};
  policy.score(model::build_tree(rows), {}).log_prob.sum().backward();
}

// Two updates from number `first` on; of several ranks each has a half.
void train(trainer::Placement& placement, optim::AdamW& optimizer, model::Decoder& policy, int first, int rank,
           int ranks) {
  for (int step = first; step < first + 2; ++step) {
    for (int half = 0; half < 2; ++half)
      if (ranks == 1 || half == rank) backward(policy, 2 * step + half);
    const double norm = placement.reduce_gradients(0.5);
    RANK_CHECK(std::isfinite(norm) && norm > 0.5);
    optimizer.step(1e-2);
    optimizer.zero_grad();
    placement.updated();
  }
}

std::shared_ptr<ShardedWeights> held(model::Decoder& policy, World& world, ShardStage stage) {
  const auto rounds = std::make_shared<PassRounds>(world.convene({0, 1}));
  world.before_meeting([rounds] { rounds->settle(); });
  return ShardedWeights::shard(policy, {stage}, rounds, world.convene({world.rank()}));
}

}  // namespace

TEST_CASE("a sharded run ends with the weights of a whole one, and both go on from each other's checkpoints") {
  for (const auto type : {at::kDouble, at::kFloat})
    for (const ShardStage stage : {ShardStage::weights, ShardStage::gradients, ShardStage::optimizer_states}) {
      CAPTURE(static_cast<int>(stage));
      const support::ScratchDirectory scratch;
      const auto whole = decoder(type);
      trainer::WholePlacement one(whole->parameters(), std::make_shared<World>());
      optim::AdamW optimizer(one.parameters(), {.epsilon = 1e-3, .weight_decay = 0.1});
      train(one, optimizer, *whole, 0, 0, 1);
      const auto first = scratch.path() / "whole", second = scratch.path() / "shards";
      std::filesystem::create_directories(first);
      std::filesystem::create_directories(second);
      model::save_decoder(*whole, first);
      one.save_optimizer(first, optimizer.state());
      train(one, optimizer, *whole, 2, 0, 1);
      const double tolerance = type == at::kDouble ? 1e-9 : 2e-5;
      std::map<std::string, Tensor> expected;
      for (const model::Parameter& p : whole->parameters()) expected[p.name] = p.value.detach();

      const auto same = [&](ShardedWeights& weights) {
        weights.each_whole([&](const distributed::FlatUnit& unit) {
          for (const auto& entry : unit.entries())
            RANK_CHECK(at::allclose(entry.value.detach(), expected.at(entry.name), 0.0, tolerance));
        });
      };
      support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
        const auto policy = decoder(type);
        const auto weights = held(*policy, *world, stage);
        trainer::ShardedPlacement placement(weights, world);
        RANK_CHECK(placement.saves_together());
        placement.require_same_start();
        optim::AdamW own(placement.parameters(), {.epsilon = 1e-3, .weight_decay = 0.1});
        train(placement, own, *policy, 0, world->rank(), 2);
        placement.save_model([&] { model::save_decoder(*policy, second); });
        placement.save_optimizer(second, own.state());
        train(placement, own, *policy, 2, world->rank(), 2);
        same(*weights);
      });
      CHECK_FALSE(std::filesystem::exists(second / trainer::optimizer_file));
      // Sharded from the whole one's, and whole from the shards'.
      support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
        const auto policy = decoder(type);
        const auto weights = held(*policy, *world, stage);
        trainer::ShardedPlacement placement(weights, world);
        optim::AdamW own(placement.parameters(), {.epsilon = 1e-3, .weight_decay = 0.1});
        placement.load_weights(first);
        own.load_state(placement.load_optimizer(first, own.state()));
        train(placement, own, *policy, 2, world->rank(), 2);
        same(*weights);
      });
      const auto again = decoder(type);
      trainer::WholePlacement other(again->parameters(), std::make_shared<World>());
      optim::AdamW resumed(other.parameters(), {.epsilon = 1e-3, .weight_decay = 0.1});
      other.load_weights(second);
      resumed.load_state(other.load_optimizer(second, resumed.state()));
      train(other, resumed, *again, 2, 0, 1);
      for (const model::Parameter& p : again->parameters())
        CHECK(at::allclose(p.value.detach(), expected.at(p.name), 0.0, tolerance));
    }
}

TEST_CASE("a state in blocks of whole tensors is refused where they are sharded") {
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto policy = decoder(at::kFloat);
    trainer::ShardedPlacement placement(held(*policy, *world, ShardStage::optimizer_states), world);
    placement.require_divisible(optim::AdamW(placement.parameters()).state());
    const optim::AdamW8bit blocks(placement.parameters(), {.adam = {}, .min_elements = 1, .whole = {}});
    RANK_CHECK(support::number_raised_by([&] { placement.require_divisible(blocks.state()); }) == "trainer.43");
  });
  const auto policy = decoder(at::kFloat);
  trainer::WholePlacement whole(policy->parameters(), std::make_shared<World>());
  CHECK_NOTHROW(whole.require_divisible(optim::AdamW8bit(whole.parameters(), {.min_elements = 1}).state()));
}

TEST_CASE("ranks that begin with other weights are refused") {
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto policy = decoder(at::kFloat);
    if (world->rank() == 1) {
      const c10::NoGradGuard no_grad;
      policy->parameters().front().value.mul_(2.0);
    }
    trainer::ShardedPlacement placement(held(*policy, *world, ShardStage::weights), world);
    RANK_CHECK(support::number_raised_by([&] { placement.require_same_start(); }) == "trainer.40");
  });
}
