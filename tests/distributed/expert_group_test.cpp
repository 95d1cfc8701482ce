#include <rlalgo/distributed/expert_group.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/sharded_weights.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/process_ranks.hpp>
#include <support/shards.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using distributed::ShardedWeights;
using distributed::ShardStage;
using distributed::World;
using tensor::Tensor;

namespace {

// A model with 4 experts a layer, in which a layer may have none.
std::shared_ptr<model::Decoder> decoder(const std::string& family, bool adapter = false,
                                        at::ScalarType type = at::kDouble) {
  model::Json json = support::small_config(family);
  json["num_hidden_layers"] = 3;
  json[family == "gpt_oss" || family == "mixtral" ? "num_local_experts" : "num_experts"] = 4;
  std::shared_ptr<model::Decoder> out = model::random_decoder(model::parse_hf_config(json, "test"), 7, type);
  if (!adapter) return out;
  model::attach_lora(*out,
                     {.r = 2,
                      .alpha = 4.0,
                      .target_modules = {"q_proj"},
                      .target_parameters = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}},
                     3);
  const c10::NoGradGuard no_grad;
  for (const model::Parameter& p : out->parameters())  // ranks may be threads: nothing is drawn
    p.value.detach().add_(at::arange(p.value.numel(), p.value.options()).mul_(0.37).sin_().view_as(p.value), 0.2);
  return out;
}

model::TokenTree tree(int number) {
  const std::vector<std::int32_t> prompt = {1, number % 23};
  std::vector<std::int32_t> completion;
  for (int i = 0; i < 4 + number % 3; ++i) completion.push_back((3 * i + number) % 23);
  const std::vector<model::Sequence> rows = {{prompt, completion}};
  return model::build_tree(rows);
}

// With the load-balancing loss, which reaches the router alone.
void backward(model::Decoder& policy, int number) {
  policy.score(tree(number), {.entropy = true, .balance_weight = 0.3}).log_prob.sum().backward();
}

using Values = std::map<std::string, Tensor>;

Values gradients_of_one(const std::string& family, bool adapter, int passes) {
  const auto policy = decoder(family, adapter);
  for (int p = 0; p < passes; ++p) backward(*policy, p);
  Values out;
  for (const model::Parameter& p : policy->parameters()) out[p.name] = p.value.grad().reshape({-1}).clone();
  return out;
}

// Every parameter's part on this rank has that part of `expected`; the numbers of elements.
void compare(ShardedWeights& weights, const Values& expected) {
  std::map<std::string, Tensor> own;
  for (const model::Parameter& p : weights.parameters()) own[p.name] = p.value.grad();
  weights.visit([&](const distributed::FlatUnit& unit) {
    for (const auto& entry : unit.entries()) {
      const auto part = unit.piece(entry);
      if (!part || !unit.trained()) continue;
      RANK_CHECK(
          at::allclose(own.at(entry.name), expected.at(entry.name).narrow(0, part->begin, part->size()), 1e-10, 1e-12));
    }
  });
}

struct Layout {
  int ranks, experts;
  ShardStage stage = ShardStage::none;
  int shards = 1;
};
const std::vector<Layout> layouts = {{2, 2},
                                     {4, 4},
                                     {4, 2},
                                     {2, 2, ShardStage::optimizer_states, 2},
                                     {2, 2, ShardStage::gradients, 2},
                                     {4, 2, ShardStage::weights, 4},
                                     {4, 4, ShardStage::weights, 2}};

bool is_expert(const std::string& name) { return name.find(".experts.") != std::string::npos; }

}  // namespace

TEST_CASE("gradients of divided experts, and of all else, are those of one rank, whatever a rank has to do") {
  const int passes = 3;
  for (const auto& [family, adapter] : {std::pair("qwen3_moe", false), {"qwen2_moe", false}, {"gpt_oss", true}}) {
    const Values expected = gradients_of_one(family, adapter, passes);
    double norm = 0.0;
    for (const auto& [name, value] : expected) norm += value.norm().item<double>() * value.norm().item<double>();
    bool checkpointing = adapter;
    for (const Layout& layout : layouts) {
      checkpointing = !checkpointing;
      CAPTURE(family, adapter, layout.ranks, layout.experts, static_cast<int>(layout.stage), checkpointing);
      support::with_ranks(layout.ranks, [&](const std::shared_ptr<World>& world) {
        const auto policy = decoder(family, adapter);
        policy->set_checkpointing(checkpointing);
        const auto weights =
            support::with_experts_divided(*policy, *world, {layout.stage}, layout.shards, layout.experts);
        for (int step = 0; step < 2; ++step) {
          // The last rank has no row, the first ones share; one scores others before, and another one after.
          if (world->rank() == 0) {
            const c10::NoGradGuard no_grad;
            (void)policy->score(tree(9), {});
          }
          for (int p = 0; p < passes; ++p)
            if (p % std::max(1, layout.ranks - 1) == world->rank()) backward(*policy, p);
          if (world->rank() == 1) {
            const c10::NoGradGuard no_grad;
            (void)policy->features(tree(8), std::vector<std::int64_t>{1});
          }
          world->barrier("between");
          RANK_CHECK(std::abs(weights->reduce_gradients() - norm) < 1e-9 * norm);
          compare(*weights, expected);
          for (const model::Parameter& p : weights->parameters()) p.value.mutable_grad() = Tensor();
          weights->updated();
        }
      });
    }
  }
}

TEST_CASE("what a rank scores does not depend on who has the experts, and a rank holds its share of them") {
  const auto one = decoder("qwen3_moe");
  const c10::NoGradGuard no_grad;
  std::vector<Tensor> expected;
  for (int r = 0; r < 4; ++r) expected.push_back(one->score(tree(r), {}).log_prob);
  for (const Layout& layout : layouts)
    support::with_ranks(layout.ranks, [&](const std::shared_ptr<World>& world) {
      const c10::NoGradGuard here;
      const auto policy = decoder("qwen3_moe");
      const auto weights =
          support::with_experts_divided(*policy, *world, {layout.stage}, layout.shards, layout.experts);
      const auto score = policy->score(tree(world->rank()), {}).log_prob;
      RANK_CHECK(at::allclose(score, expected[static_cast<std::size_t>(world->rank())], 1e-12, 1e-12));
      std::int64_t held = 0;
      for (const auto& [name, value] : policy->named_tensors())
        if (is_expert(name) && value.storage().nbytes() > 0) ++held;
      world->barrier("held");
      RANK_CHECK(held == 3 * 3 * 4 / layout.experts);
    });
}

TEST_CASE("experts are whole while they are gathered, fetched one by one, and copied") {
  const auto one = decoder("mixtral");
  const c10::NoGradGuard no_grad;
  const auto wanted = one->named_tensors();
  for (const Layout& layout : layouts)
    support::with_ranks(layout.ranks, [&](const std::shared_ptr<World>& world) {
      const c10::NoGradGuard here;
      const auto policy = decoder("mixtral");
      const auto weights =
          support::with_experts_divided(*policy, *world, {layout.stage}, layout.shards, layout.experts);
      const auto values = policy->named_tensors();
      RANK_CHECK(weights->gather_all());
      for (std::size_t i = 0; i < values.size(); ++i) RANK_CHECK(at::equal(values[i].second, wanted[i].second));
      (void)policy->score(tree(1), {});
      const auto compare_fetched = [&](double factor) {
        for (std::size_t i = values.size(); i-- > 0;)
          RANK_CHECK(at::equal(model::whole(*policy, values[i].second), wanted[i].second.mul(factor)));
      };
      if (world->rank() == 0) weights->fetch_within([&] { compare_fetched(1.0); });
      world->barrier("fetched");
      const auto copy = weights->frozen_copy(*policy);
      for (const model::Parameter& p : weights->parameters()) p.value.detach().mul_(2.0);
      weights->updated();
      if (world->rank() == layout.ranks - 1) weights->fetch_within([&] { compare_fetched(2.0); });
      world->barrier("changed");
      const auto score = copy->score(tree(world->rank()), {}).log_prob;
      RANK_CHECK(at::allclose(score, one->score(tree(world->rank()), {}).log_prob, 1e-12, 1e-12));
      world->barrier("copied");
      // A reference that follows.
      const auto held = std::dynamic_pointer_cast<ShardedWeights>(copy->gate());
      weights->blend_into(*held, 0.5);
      if (world->rank() == 0)
        held->fetch_within([&] {
          const auto moved = copy->named_tensors();
          for (std::size_t i = 0; i < moved.size(); ++i)
            RANK_CHECK(at::allclose(held->whole(moved[i].second), wanted[i].second.mul(1.5)));
        });
      world->barrier("the end");
    });
}

TEST_CASE("a decoder without its adapter, and a copy of the adapter, compute with the experts of the others, too") {
  const auto one = decoder("qwen3_moe", true);
  const c10::NoGradGuard no_grad;
  const Tensor without = one->without_adapter()->score(tree(2), {}).log_prob, with = one->score(tree(2), {}).log_prob;
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const c10::NoGradGuard here;
    const auto policy = decoder("qwen3_moe", true);
    const auto weights = support::with_experts_divided(*policy, *world, {ShardStage::none}, 1, 2);
    const auto bare = policy->without_adapter();
    // The ranks are at different passes: each helps with the other's.
    const auto first = world->rank() == 0 ? bare->score(tree(2), {}) : policy->score(tree(2), {});
    RANK_CHECK(at::allclose(first.log_prob, world->rank() == 0 ? without : with, 1e-12, 1e-12));
    world->barrier("the end");
    RANK_CHECK(policy->gate()->seat(bare->weights()) == 1);
    RANK_CHECK(policy->gate()->seat(policy->weights()) == 0);
  });
}

TEST_CASE("a backward pass whose forward pass is gone is an error that says which") {
  support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
    const auto policy = decoder("qwen3_moe");
    const auto weights = support::with_experts_divided(*policy, *world, {ShardStage::none}, 1, 2);
    const auto scores = policy->score(tree(world->rank()), {});
    world->barrier("a meeting that ends the passes");
    std::string caught;
    try {
      scores.log_prob.sum().backward();
    } catch (const std::exception& error) {
      caught = error.what();
    }
    RANK_CHECK(caught.find("distributed.20") != std::string::npos);
    RANK_CHECK(caught.find("layer 2") != std::string::npos);
  });
}

TEST_CASE("bfloat16: rows travel as they are, factors and their gradients in float32") {
  for (const bool adapter : {false, true}) {
    const auto one = decoder("qwen3_moe", adapter, at::kBFloat16);
    for (int p = 0; p < 2; ++p) backward(*one, p);
    Values expected;
    for (const model::Parameter& p : one->parameters()) expected[p.name] = p.value.grad().to(at::kFloat).reshape({-1});
    support::with_ranks(2, [&](const std::shared_ptr<World>& world) {
      const auto policy = decoder("qwen3_moe", adapter, at::kBFloat16);
      const auto weights = support::with_experts_divided(*policy, *world, {ShardStage::none}, 1, 2);
      backward(*policy, world->rank());
      (void)weights->reduce_gradients();
      std::map<std::string, Tensor> own;
      for (const model::Parameter& p : weights->parameters()) own[p.name] = p.value.grad();
      weights->visit([&](const distributed::FlatUnit& unit) {
        for (const auto& entry : unit.entries())
          if (const auto part = unit.piece(entry); part && unit.trained()) {
            const Tensor wanted = expected.at(entry.name).narrow(0, part->begin, part->size());
            const double scale = wanted.abs().max().item<double>();
            RANK_CHECK((own.at(entry.name) - wanted).abs().max().item<double>() <= 0.02 * scale + 1e-3);
          }
      });
    });
  }
}
