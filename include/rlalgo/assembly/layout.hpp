// Where the weights lie, as a choice of assembly/completions.hpp: on every rank (Whole), or sharded over the ranks, so that they are
// whole only while they are published (Sharded): all of them for an engine that reads them, a layer for one with a copy of its own,
// a tensor for a server.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <utility>

#include <rlalgo/assembly/drawer.hpp>
#include <rlalgo/assembly/sharding.hpp>
#include <rlalgo/distributed/flat_unit.hpp>
#include <rlalgo/distributed/sharded_weights.hpp>
#include <rlalgo/sync/fetched_weights.hpp>
#include <rlalgo/sync/first_rank_sync.hpp>
#include <rlalgo/sync/gathered_weights.hpp>
#include <rlalgo/sync/snapshot_weights.hpp>
#include <rlalgo/sync/weight_gate.hpp>

namespace rlalgo::assembly {

struct Whole {
  // The sync policy of what was drawn.
  template <bool serves, class G, class Y>
  [[nodiscard]] Y policy(Drawn<G, Y>& drawn) const {
    return std::move(drawn.sync);
  }
  // Who gathers weights for a server.
  [[nodiscard]] sync::PublishingRanks publishers(const std::shared_ptr<distributed::World>& /*world*/) const {
    return {};
  }
};

struct Sharded {
  std::shared_ptr<Sharding> sharding = {};  // holds the policy already; null: one rank, which has everything

  template <bool serves, class G, class Y>
  [[nodiscard]] auto policy(Drawn<G, Y>& drawn) const {
    const bool weights = sharding != nullptr && sharding->weights();  // else gradients or states alone, or nothing
    const auto shards = weights ? sharding->policy() : nullptr;
    if constexpr (std::same_as<Y, sync::SnapshotWeights>) {
      if (weights)
        drawn.snapshots->fetch_by([shards](const inference::WeightSnapshots::See& see) {
          shards->each_whole([&](const distributed::FlatUnit& unit) {
            for (const auto& entry : unit.entries()) see(entry.value);
          });
          for (const tensor::Tensor& weight : shards->others()) see(weight);
        });
      return std::move(drawn.sync);
    } else if constexpr (!serves) {
      return sync::GatheredWeights<Y>(
          std::move(drawn.sync), [shards] { return shards != nullptr && shards->gather_all(); }, drawn.moved);
    } else {
      if constexpr (std::same_as<Y, sync::FirstRankSync>)
        return std::move(drawn.sync);
      else
        return sync::FetchedWeights<Y>(std::move(drawn.sync), [shards](const std::function<void()>& use) {
          shards != nullptr ? shards->fetch_within(use) : use();
        });
    }
  }
  [[nodiscard]] sync::PublishingRanks publishers(const std::shared_ptr<distributed::World>& world) const {
    const bool weights = sharding != nullptr && sharding->weights();
    return {.sources = weights ? world : nullptr};
  }
};

}  // namespace rlalgo::assembly
