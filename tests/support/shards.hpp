// Decoders sharded over the ranks of a test.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/distributed/pass_rounds.hpp>
#include <rlalgo/distributed/sharded_weights.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::support {

// On `shards` neighbouring ranks each; those at the same place of their neighbours hold the same shards. `device`: of the teams.
inline std::shared_ptr<distributed::ShardedWeights> sharded(model::Decoder& policy, distributed::World& world,
                                                            distributed::ShardConfig config, int shards,
                                                            at::Device device = at::Device(at::kCPU)) {
  std::vector<int> own, alike;
  for (int r = 0; r < world.size(); ++r) {
    if (r / shards == world.rank() / shards) own.push_back(r);
    if (r % shards == world.rank() % shards) alike.push_back(r);
  }
  const auto rounds = std::make_shared<distributed::PassRounds>(world.convene(own, device));
  const auto replicas = world.convene(alike, device);
  world.before_meeting([rounds] { rounds->settle(); });
  return distributed::ShardedWeights::shard(policy, config, rounds, replicas);
}

// The same with the experts of every layer divided among `experts` neighbours; shards 1: everything else is whole.
inline std::shared_ptr<distributed::ShardedWeights> with_experts_divided(model::Decoder& policy,
                                                                         distributed::World& world,
                                                                         distributed::ShardConfig config, int shards,
                                                                         int experts) {
  const auto neighbours = [&](int size) {
    std::vector<int> list;
    for (int r = 0; r < world.size(); ++r)
      if (r / size == world.rank() / size) list.push_back(r);
    return world.convene(list);
  };
  const auto alike = [&](int size) {
    std::vector<int> list;
    for (int r = 0; r < world.size(); ++r)
      if (r % size == world.rank() % size) list.push_back(r);
    return world.convene(list);
  };
  distributed::ShardTeams teams;
  teams.rounds = std::make_shared<distributed::PassRounds>(neighbours(std::max(shards, experts)));
  teams.shards = shards > 1 ? neighbours(shards) : std::make_shared<distributed::Team>();
  teams.replicas = alike(shards);
  teams.experts = neighbours(experts);
  teams.expert_replicas = alike(experts);
  world.before_meeting([rounds = teams.rounds] { rounds->settle(); });
  return distributed::ShardedWeights::shard(policy, config, std::move(teams));
}

// How a run of `ranks` lies on them: `context` ranks share their rows' tokens, `shards` hold the weights.
struct Layout {
  int ranks = 1, context = 1, shards = 1;
  distributed::ShardConfig config = {};
};

// The layouts that there are on two and four ranks, hybrid ones and those with context groups among them.
inline std::vector<Layout> layouts() {
  using Stage = distributed::ShardStage;
  return {{2, 1, 2, {Stage::optimizer_states}}, {2, 1, 2, {Stage::gradients}},     {4, 1, 4, {Stage::weights}},
          {4, 1, 2, {Stage::weights}},          {2, 2, 2, {Stage::weights}},       {4, 2, 4, {Stage::weights}},
          {4, 2, 4, {Stage::gradients}},        {4, 2, 2, {Stage::weights, false}}};
}

// Of each trained tensor, by name. All ranks together.
inline std::map<std::string, double> sums_of_squares(distributed::ShardedWeights& weights) {
  std::map<std::string, double> out;
  weights.each_whole([&](const distributed::FlatUnit& unit) {
    for (const auto& entry : unit.entries())
      if (unit.trained()) out[entry.name] = entry.value.detach().square().sum().item<double>();
  });
  return out;
}

}  // namespace rlalgo::support
