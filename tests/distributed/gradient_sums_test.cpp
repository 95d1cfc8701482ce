#include <rlalgo/distributed/gradient_sums.hpp>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/distributed/process_world.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/process_ranks.hpp>
#include <support/scratch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using distributed::GradientSums;
using distributed::World;
using support::everybody;
using tensor::Tensor;

namespace {

constexpr std::int64_t layers = 4;

std::shared_ptr<model::Decoder> decoder(at::ScalarType type = at::kFloat, bool adapter = false) {
  model::Json config = support::small_config("qwen3");
  config["num_hidden_layers"] = layers;
  std::shared_ptr<model::Decoder> out = model::random_decoder(model::parse_hf_config(config, "test"), 7, type);
  if (adapter) {
    model::LoraConfig lora{.r = 2, .alpha = 4.0, .target_modules = {"q_proj", "down_proj"}};
    lora.init = model::LoraInit::random;
    model::attach_lora(*out, lora, 3);
  }
  return out;
}

Tensor score(model::Decoder& policy, int number) {
  const std::vector<std::int32_t> prompt = {1, number % 23}, completion = {4, (5 + number) % 23, 6};
  const std::vector<model::Sequence> rows = {{prompt, completion}};
  return policy.score(model::build_tree(rows), {}).log_prob.sum();
}

// A bucket for each layer, and the gate of the decoder.
std::shared_ptr<GradientSums> gate(model::Decoder& policy, World& world) {
  auto out = std::make_shared<GradientSums>(policy.parameters(), world.convene(everybody(world)), 1);
  policy.set_gate(out);
  return out;
}

// What the gradients are when they are summed after the passes, a parameter at a time.
void require_sums(model::Decoder& policy, model::Decoder& whole, World& world) {
  const auto team = world.convene(everybody(world));
  const auto own = policy.parameters(), other = whole.parameters();
  for (std::size_t i = 0; i < own.size(); ++i) {
    std::vector<Tensor> sum = {other[i].value.grad().defined() ? other[i].value.grad()
                                                               : at::zeros_like(other[i].value.detach())};
    team->sum(sum);
    RANK_CHECK(own[i].value.grad().defined());
    RANK_CHECK(at::equal(own[i].value.grad(), sum[0]));
  }
}

}  // namespace

TEST_CASE("sums that go on beside the backward pass have the bits of those after it") {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16})
    support::with_ranks(3, [&](const std::shared_ptr<World>& world) {
      const auto policy = decoder(type), whole = decoder(type);
      const auto sums = gate(*policy, *world);
      RANK_CHECK(sums->buckets() == layers + 1);
      for (int step = 0; step < 2; ++step) {
        // As many micro-batches as the rank's number, and one; of them the last.
        for (int part = 0; part <= world->rank(); ++part) {
          if (part == world->rank()) sums->begin_last();
          score(*policy, 7 * step + 3 * part + world->rank()).backward();
          RANK_CHECK(sums->begun() == (part == world->rank() ? layers : 0));
          score(*whole, 7 * step + 3 * part + world->rank()).backward();
        }
        RANK_CHECK(sums->finish().size() == policy->parameters().size());
        RANK_CHECK(sums->begun() == 0);
        require_sums(*policy, *whole, *world);
        for (const auto& one : {policy, whole})
          for (const model::Parameter& p : one->parameters()) p.value.mutable_grad() = Tensor();
      }
      RANK_CHECK(sums->busy() > 0.0);
      RANK_CHECK(sums->waited() >= 0.0);
      world->barrier("the end");
    });
}

TEST_CASE("small layers go together, and nothing is begun by a pass that was not announced") {
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto policy = decoder();
    const auto sums = std::make_shared<GradientSums>(policy->parameters(), world->convene({0, 1}));
    RANK_CHECK(sums->buckets() == 2);  // of all layers, and of what is outside
    policy->set_gate(sums);
    score(*policy, 1).backward();
    RANK_CHECK(sums->begun() == 0);
    sums->begin_last();
    score(*policy, 2).backward();
    RANK_CHECK(sums->begun() == 1);
    score(*policy, 3);  // one that looks for rows to blame, say
    RANK_CHECK(sums->begun() == 1);
    (void)sums->finish();
    world->barrier("the end");
  });
}

TEST_CASE("of several passes in one graph the last to be differentiated begins the sums") {
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto policy = decoder(), whole = decoder();
    const auto sums = gate(*policy, *world);
    sums->begin_last();
    (score(*policy, world->rank()) + score(*policy, 5)).backward();
    RANK_CHECK(sums->begun() == layers);
    (void)sums->finish();
    (score(*whole, world->rank()) + score(*whole, 5)).backward();
    require_sums(*policy, *whole, *world);
    world->barrier("the end");
  });
}

TEST_CASE("a rank without rows takes part, and what no rank has a gradient of stays without") {
  support::with_ranks(3, [&](const std::shared_ptr<World>& world) {
    const auto policy = decoder(), whole = decoder();
    const auto sums = gate(*policy, *world);
    RANK_CHECK(sums->finish().empty());  // nobody had rows
    for (const model::Parameter& p : policy->parameters()) RANK_CHECK(!p.value.grad().defined());
    if (world->rank() != 1) {
      sums->begin_last();
      score(*policy, world->rank()).backward();
      score(*whole, world->rank()).backward();
    }
    RANK_CHECK(sums->finish().size() == policy->parameters().size());
    require_sums(*policy, *whole, *world);
    world->barrier("the end");
  });
}

TEST_CASE("of a model with an adapter, or with frozen layers, what is trained is summed") {
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    for (const bool adapter : {true, false}) {
      const auto policy = decoder(at::kFloat, adapter), whole = decoder(at::kFloat, adapter);
      if (!adapter)
        for (const auto& one : {policy, whole}) one->train_only({"model.layers.[13].", "model.norm"});
      const auto sums = gate(*policy, *world);
      RANK_CHECK(sums->buckets() == (adapter ? layers : 3));
      sums->begin_last();
      score(*policy, world->rank()).backward();
      RANK_CHECK(sums->begun() == (adapter ? layers : 2));
      score(*whole, world->rank()).backward();
      RANK_CHECK(sums->finish().size() == policy->parameters().size());
      require_sums(*policy, *whole, *world);
    }
    world->barrier("the end");
  });
}

TEST_CASE("a rank that fails ends the others' wait for sums") {
  support::with_ranks(
      2,
      [&](const std::shared_ptr<World>& world) {
        const auto policy = decoder();
        const auto sums = gate(*policy, *world);
        world->enter(3);
        if (world->rank() == 1) return world->fail("the disk is full");
        sums->begin_last();
        score(*policy, 1).backward();
        try {
          (void)sums->finish();
          RANK_CHECK(!"the sums ended");
        } catch (const core::Error& error) {
          RANK_CHECK(support::lacks(error.what(), {"distributed.8", "the disk is full", "step 3", "sum of gradients"})
                         .empty());
        }
      },
      1.0);
}

TEST_CASE("a backward pass that failed begins nothing later, and one that was left begins nothing at all") {
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto policy = decoder(), whole = decoder();
    const auto sums = gate(*policy, *world);
    // As the last pass of a step that ends in its first layer to be differentiated.
    sums->begin_last();
    sums->begin({model::LayerGate::Phase::forward, layers, true});
    sums->begin({model::LayerGate::Phase::backward, layers, true});
    score(*policy, world->rank()).backward();
    RANK_CHECK(sums->begun() == 0);
    score(*policy, 4 + world->rank()).backward();
    for (const int number : {0, 4}) score(*whole, number + world->rank()).backward();
    (void)sums->finish();
    require_sums(*policy, *whole, *world);

    sums->begin_last();
    sums->leave();
    score(*policy, 1).backward();
    RANK_CHECK(sums->begun() == 0);
    world->barrier("the end");
  });
}

TEST_CASE("sums go on after a step that all ranks gave up") {
  os::Interruption::clear();
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto policy = decoder(), whole = decoder();
    const auto sums = gate(*policy, *world);
    if (world->rank() == 0) {
      sums->begin_last();
      score(*policy, 1).backward();
      for (const model::Parameter& p : policy->parameters()) p.value.mutable_grad() = Tensor();
    }
    world->give_up(SIGTERM);
    // At first with rows on rank 1 alone: rank 0 does not announce a pass.
    if (world->rank() == 1) {
      sums->begin_last();
      for (const auto& one : {policy, whole}) score(*one, 1).backward();
    }
    (void)sums->finish();
    require_sums(*policy, *whole, *world);
    for (const auto& one : {policy, whole})
      for (const model::Parameter& p : one->parameters()) p.value.mutable_grad() = Tensor();
    sums->begin_last();
    for (const auto& one : {policy, whole}) score(*one, world->rank()).backward();
    (void)sums->finish();
    require_sums(*policy, *whole, *world);
    world->barrier("the end");
  });
  os::Interruption::clear();
}
