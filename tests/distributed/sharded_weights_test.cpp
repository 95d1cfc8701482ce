#include <rlalgo/distributed/sharded_weights.hpp>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/process_world.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/not_run.hpp>
#include <support/process_ranks.hpp>
#include <support/scratch.hpp>
#include <support/shards.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using distributed::ShardConfig;
using distributed::ShardedWeights;
using distributed::ShardStage;
using distributed::World;
using tensor::Tensor;

namespace {

std::shared_ptr<model::Decoder> decoder(at::ScalarType type = at::kDouble, bool adapter = false) {
  std::shared_ptr<model::Decoder> out =
      model::random_decoder(model::parse_hf_config(support::small_config("qwen3"), "test"), 7, type);
  if (adapter) {
    model::LoraConfig lora{.r = 2, .alpha = 4.0, .target_modules = {"q_proj", "down_proj"}};
    lora.init = model::LoraInit::random;
    model::attach_lora(*out, lora, 3);
  }
  return out;
}

// A tree of one document, another one for each number.
model::TokenTree tree(int number) {
  const std::vector<std::int32_t> prompt = {1, number % 23};
  std::vector<std::int32_t> completion;
  for (int i = 0; i < 4 + number % 3; ++i) completion.push_back((3 * i + number) % 23);
  const std::vector<model::Sequence> rows = {{prompt, completion}};
  return model::build_tree(rows);
}

void backward(model::Decoder& policy, int number) {
  policy.score(tree(number), {.entropy = true}).log_prob.sum().backward();
}

using Values = std::map<std::string, Tensor>;

// Gradients of one process over all numbers.
Values expected_gradients(bool adapter, int passes) {
  const auto policy = decoder(at::kDouble, adapter);
  for (int p = 0; p < passes; ++p) backward(*policy, p);
  Values out;
  for (const model::Parameter& p : policy->parameters()) out[p.name] = p.value.grad().reshape({-1}).clone();
  return out;
}

}  // namespace

TEST_CASE("sharded gradients are those of one process, at every stage, whatever a rank has to do") {
  for (const bool adapter : {false, true}) {
    const int passes = 3;
    const Values expected = expected_gradients(adapter, passes);
    double norm = 0.0;
    for (const auto& [name, value] : expected) norm += value.norm().item<double>() * value.norm().item<double>();
    for (const auto& [ranks, shards] : {std::pair{2, 2}, {3, 3}, {4, 2}})
      for (const ShardConfig config : {ShardConfig{ShardStage::weights, true},
                                       {ShardStage::weights, false},
                                       {ShardStage::gradients},
                                       {ShardStage::optimizer_states}})
        for (const bool checkpointing : {false, true}) {
          CAPTURE(adapter, ranks, static_cast<int>(config.stage), checkpointing);
          support::with_ranks(ranks, [&, shards = shards](const std::shared_ptr<World>& world) {
            const auto policy = decoder(at::kDouble, adapter);
            policy->set_checkpointing(checkpointing);
            const auto weights = support::sharded(*policy, *world, config, shards);
            for (int step = 0; step < 2; ++step) {
              // The last rank has no row, the first ones share; one scores others before, and another one after.
              if (world->rank() == 0) {
                const c10::NoGradGuard no_grad;
                (void)policy->score(tree(9), {});
              }
              for (int p = 0; p < passes; ++p)
                if (p % std::max(1, ranks - 1) == world->rank()) backward(*policy, p);
              if (world->rank() == 1) {
                const c10::NoGradGuard no_grad;
                (void)policy->features(tree(8), std::vector<std::int64_t>{1});
              }
              world->barrier("between");
              RANK_CHECK(std::abs(weights->reduce_gradients() - norm) < 1e-9 * norm);
              std::size_t seen = 0;
              for (const model::Parameter& p : weights->parameters()) {
                const distributed::FlatUnit* home = nullptr;
                const distributed::FlatUnit::Entry* place = nullptr;
                weights->visit([&](const distributed::FlatUnit& unit) {
                  for (const auto& entry : unit.entries())
                    if (entry.name == p.name) {
                      home = &unit;
                      place = &entry;
                    }
                });
                const auto part = home->piece(*place);
                const Tensor wanted = expected.at(p.name).narrow(0, part->begin, part->size());
                RANK_CHECK(at::allclose(p.value.grad(), wanted, 1e-10, 1e-12));
                p.value.mutable_grad() = Tensor();
                ++seen;
              }
              RANK_CHECK(seen > 0);
              weights->updated();
            }
          });
        }
  }
}

TEST_CASE("weights that the optimizer has changed in their shards are whole in the next pass") {
  for (const ShardStage stage : {ShardStage::weights, ShardStage::gradients, ShardStage::optimizer_states}) {
    const auto one = decoder();
    {
      const c10::NoGradGuard no_grad;
      for (const model::Parameter& p : one->parameters()) p.value.detach().mul_(1.5);
    }
    const c10::NoGradGuard no_grad;
    const Tensor expected = one->score(tree(1), {}).log_prob;
    support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
      const c10::NoGradGuard here;
      const auto policy = decoder();
      const auto weights = support::sharded(*policy, *world, {stage}, 2);
      for (const model::Parameter& p : weights->parameters()) p.value.detach().mul_(1.5);
      weights->updated();
      RANK_CHECK(at::equal(policy->score(tree(1), {}).log_prob, expected));
      // What generates reads them where they are.
      (void)weights->gather_all();
      RANK_CHECK(at::equal(policy->weights().embedding.detach(), one->weights().embedding.detach()));
      RANK_CHECK(at::equal(policy->weights().layers[1].up_proj.weight.detach(),
                           one->weights().layers[1].up_proj.weight.detach()));
      RANK_CHECK(at::equal(policy->score(tree(1), {}).log_prob, expected));
      world->barrier("the end");
      RANK_CHECK((policy->weights().layers[1].up_proj.weight.storage().nbytes() == 0) ==
                 (stage == ShardStage::weights));
    });
  }
}

TEST_CASE("a frozen copy is sharded, too, and stays as it was") {
  const auto one = decoder();
  const c10::NoGradGuard no_grad;
  const Tensor expected = one->score(tree(2), {}).log_prob;
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const c10::NoGradGuard here;
    const auto policy = decoder();
    const auto weights = support::sharded(*policy, *world, {}, 2);
    const auto copy = weights->frozen_copy(*policy);
    RANK_CHECK(copy->parameters().empty());
    for (const model::Parameter& p : weights->parameters()) p.value.detach().mul_(0.5);
    weights->updated();
    for (int times = 0; times <= world->rank(); ++times)
      RANK_CHECK(at::equal(copy->score(tree(2), {}).log_prob, expected));
    RANK_CHECK(!at::equal(policy->score(tree(2), {}).log_prob, expected));
    world->barrier("the end");
    RANK_CHECK(copy->weights().embedding.storage().nbytes() == 0);
  });
}

TEST_CASE("one rank fetches weights tensor by tensor while the others wait or compute") {
  for (const bool adapter : {false, true}) {
    const auto one = decoder(at::kDouble, adapter);
    const auto wanted = one->named_tensors();
    for (const auto& [ranks, shards] : {std::pair{2, 2}, {3, 3}, {4, 2}}) {
      CAPTURE(adapter, ranks, shards);
      support::with_ranks(ranks, [&, shards = shards](const std::shared_ptr<World>& world) {
        const c10::NoGradGuard no_grad;
        const auto policy = decoder(at::kDouble, adapter);
        const auto weights = support::sharded(*policy, *world, {}, shards);
        const auto values = policy->named_tensors();
        RANK_CHECK(values.size() == wanted.size());
        const auto compare = [&](double factor) {
          for (std::size_t i = values.size(); i-- > 0;) {  // in any order
            const Tensor whole = model::whole(*policy, values[i].second);
            const bool trained = values[i].second.requires_grad();
            RANK_CHECK(at::equal(whole, wanted[i].second.detach().mul(trained ? factor : 1.0)));
            RANK_CHECK(values[i].second.storage().nbytes() == 0);  // nothing is whole
          }
        };
        if (world->rank() == ranks - 1) (void)policy->score(tree(3), {});
        if (world->rank() == 0) weights->fetch_within([&] { compare(1.0); });
        if (world->rank() == 1) (void)policy->score(tree(4), {});
        world->barrier("between");
        for (const model::Parameter& p : weights->parameters()) p.value.detach().mul_(2.0);
        weights->updated();
        if (world->rank() == ranks - 1) weights->fetch_within([&] { compare(2.0); });
        world->barrier("after");
        // What goes wrong in a fetch ends it; outside of one nothing is there.
        if (world->rank() == 0) {
          std::string caught;
          try {
            weights->fetch_within([&] {
              (void)model::whole(*policy, values[0].second);
              throw std::runtime_error("a full disk");
            });
          } catch (const std::runtime_error& error) {
            caught = error.what();
          }
          RANK_CHECK(caught == "a full disk");
          try {
            (void)model::whole(*policy, values[0].second);
            RANK_CHECK(!"a weight was there");
          } catch (const core::Error& error) {
            RANK_CHECK((error.room() == "distributed" && error.number() == 12));
          }
        }
        world->barrier("at last");
        (void)weights->gather_all();
        RANK_CHECK(model::whole(*policy, values[0].second).is_same(values[0].second));
        world->barrier("the end");
      });
    }
  }
}

TEST_CASE("a reference moves towards the policy shard by shard, trained weights and others") {
  for (const auto& [ranks, shards] : {std::pair{2, 2}, {4, 2}})
    support::with_ranks(ranks, [&, shards = shards](const std::shared_ptr<World>& world) {
      const c10::NoGradGuard no_grad;
      const auto policy = decoder();
      policy->train_only({"model.layers.1.mlp"});
      const auto before = decoder();
      const auto weights = support::sharded(*policy, *world, {}, shards);
      const auto copy = weights->frozen_copy(*policy);
      const auto reference = std::dynamic_pointer_cast<ShardedWeights>(copy->gate());
      for (const model::Parameter& p : weights->parameters()) p.value.detach().mul_(3.0);
      weights->updated();
      (void)copy->score(tree(2), {});
      weights->blend_into(*reference, 0.25);
      if (world->rank() == 0)
        reference->fetch_within([&] {
          const auto then = before->named_tensors();
          const auto now = copy->named_tensors();
          for (std::size_t i = 0; i < then.size(); ++i) {
            const bool moved = then[i].first.find("layers.1.mlp") != std::string::npos;
            RANK_CHECK(at::allclose(reference->whole(now[i].second), then[i].second * (moved ? 1.5 : 1.0)));
          }
        });
      // And is taken from where it was kept.
      reference->load([&](const std::string& name) {
        for (const auto& [known, value] : before->named_tensors())
          if (known == name) return value.detach();
        return Tensor();
      });
      RANK_CHECK(at::equal(copy->score(tree(2), {}).log_prob, before->score(tree(2), {}).log_prob));
      world->barrier("the end");
    });
}

TEST_CASE("bfloat16 is sent as it is and added in float32") {
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto policy = decoder(at::kBFloat16);
    const auto weights = support::sharded(*policy, *world, {}, 2);
    backward(*policy, world->rank());
    (void)weights->reduce_gradients();
    for (const model::Parameter& p : weights->parameters()) {
      RANK_CHECK(p.value.scalar_type() == at::kBFloat16);
      RANK_CHECK(p.value.grad().scalar_type() == at::kFloat);
    }
  });
}

TEST_CASE("a step without a backward pass on any rank has no gradients") {
  for (const ShardStage stage : {ShardStage::weights, ShardStage::gradients, ShardStage::optimizer_states})
    support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
      const auto policy = decoder();
      const auto weights = support::sharded(*policy, *world, {stage}, 2);
      RANK_CHECK(weights->reduce_gradients() == 0.0);
      for (const model::Parameter& p : weights->parameters()) RANK_CHECK(!p.value.grad().defined());
    });
}
