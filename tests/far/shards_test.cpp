// Weights in shards of two ranks on a device whose memory the host may not touch: updates that take the clip from there.
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/any_optimizer.hpp>
#include <rlalgo/optim/lion.hpp>
#include <rlalgo/trainer/sharded_placement.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/shards.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using distributed::ShardedWeights;
using distributed::ShardStage;
using distributed::World;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

at::Tensor backward(model::Decoder& policy, std::int32_t number, double scale) {
  const std::vector<std::int32_t> prompt = {1, number % 23}, completion = {4, 5 + number, 6};
  const std::vector<model::Sequence> rows = {{prompt, completion}};
  const auto loss = policy.score(model::build_tree(rows), {}).log_prob.sum().mul(scale);
  loss.backward();
  return loss.detach();
}

struct Found {
  std::vector<double> norms;
  std::map<std::string, at::Tensor> weights;
};

// Two ranks with a row each, three updates; the third one's gradient is not finite with `spoilt`.
Found train(at::Device device, ShardStage stage, const optim::AnyOptimizer::Config& config, bool spoilt) {
  Found out;
  support::on_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto policy = model::load_decoder(
        golden / "llama", {.dtype = at::kFloat, .memory = model::memory_of_weights(true), .device = device});
    const auto weights = support::sharded(*policy, *world, {stage}, 2, device);
    trainer::ShardedPlacement placement(weights, world);
    optim::AnyOptimizer optimizer(placement.parameters(), config);
    RANK_CHECK(placement.clips_on_device() == !device.is_cpu());
    RANK_CHECK(optimizer.clips_on_device() == !device.is_cpu());
    for (std::int32_t step = 0; step < 3; ++step) {
      const double scale = spoilt && step == 2 && world->rank() == 1 ? INFINITY : 0.5;
      const auto loss = backward(*policy, 2 * step + world->rank(), scale);
      double norm = 0.0;
      if (placement.clips_on_device()) {
        (void)world->gather("backward passes", "");
        const auto before = support::far::counts();
        const auto clip = placement.reduce_on_device(0.5, 2.0, std::vector{loss});
        optimizer.step(1e-2, clip);
        (void)world->gather("updates", "");
        const auto count = support::far::counts().since(before);  // of both ranks
        RANK_CHECK(count.scalars + count.copies_out == 0);
        (void)world->gather("counts", "");
        norm = clip.norm.to(at::kCPU).item<double>();
      } else {
        norm = placement.reduce_gradients(0.5, 2.0);
        if (std::isfinite(norm)) optimizer.step(1e-2);
      }
      optimizer.zero_grad();
      placement.updated();
      if (world->rank() == 0) out.norms.push_back(norm);
      (void)world->gather("a step", "");
    }
    weights->each_whole([&](const distributed::FlatUnit& unit) {
      if (world->rank() == 0)
        for (const auto& entry : unit.entries()) out.weights[entry.name] = entry.value.detach().to(at::kCPU).clone();
    });
  });
  return out;
}

}  // namespace

TEST_CASE("shards on a device are updated as on the CPU, and nobody waits for the norm") {
  const std::map<std::string, optim::AnyOptimizer::Config> kinds = {
      {"adamw", optim::AnyOptimizer::of<optim::AdamW>({.epsilon = 1e-3, .weight_decay = 0.1})},
      {"lion", optim::AnyOptimizer::of<optim::Lion>({.weight_decay = 0.1})}};
  for (const auto& [name, config] : kinds)
    // LibTorch has one thread for the backward passes of a device, so ranks of one process may not wait for each other within one: gradients
    // are summed after it.
    for (const ShardStage stage : {ShardStage::optimizer_states})
      for (const bool spoilt : {false, true}) {
        CAPTURE(name, static_cast<int>(stage), spoilt);
        const Found near = train(at::kCPU, stage, config, spoilt),
                    far = train(support::far::device(), stage, config, spoilt);
        REQUIRE(near.norms.size() == 3);
        for (std::size_t i = 0; i < 3; ++i) {
          if (spoilt && i == 2) {
            CHECK_FALSE(std::isfinite(far.norms[i]));
            CHECK_FALSE(std::isfinite(near.norms[i]));
          } else {
            CHECK(far.norms[i] == Approx(near.norms[i]).epsilon(1e-4));
          }
        }
        REQUIRE(near.weights.size() == far.weights.size());
        for (const auto& [weight, value] : near.weights) {
          CAPTURE(weight);
          // Lion moves by the sign, which rounding may change where a momentum is near 0.
          const double share = far.weights.at(weight).sub(value).abs().gt(1e-4).to(at::kDouble).mean().item<double>();
          CHECK(share <= (name == "lion" ? 2e-3 : 0.0));
          CHECK(far.weights.at(weight).isfinite().all().item<bool>());
        }
      }
}
