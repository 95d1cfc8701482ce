// Weights sharded over the ranks: teams of ranks, and the models that they hold.
//
//   ranks          0 1 2 3   with shard_size 2: {0, 1} and {2, 3} each hold the model; {0, 2} and {1, 3} the same shards
//
//   experts        0 1 2 3   with expert_size 2: {0, 1} and {2, 3} each hold all experts; {0, 2} and {1, 3} the same ones
//
// shard_size counts context groups: with context_size 2 and shard_size 2 four ranks hold the model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <rlalgo/distributed/sharded_weights.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/trainer/companion.hpp>
#include <rlalgo/trainer/placement.hpp>
#include <rlalgo/trainer/reference_sync.hpp>
#include <rlalgo/trainer/sharded_placement.hpp>

namespace rlalgo::assembly {

struct ShardingConfig {
  distributed::ShardConfig config = {};             // what is sharded, and how long gathered layers stay whole
  std::optional<std::int64_t> shard_size = {};      // context groups that share one model; all unless set
  std::optional<std::int64_t> replicate_size = {};  // copies of it; context groups / shard_size unless set
  bool shards = true;                               // false: only experts are divided
  std::int64_t context_size = 1;                    // ranks that share the tokens of a row
  std::int64_t expert_size = 1;                     // ranks that share the experts of a layer
  bool file_of_each = false;                        // the saved model has as many files as ranks that share it
};

// What the models of a run share.
class Sharding {
 public:
  // All ranks together; null on one rank, which has everything.
  [[nodiscard]] static std::shared_ptr<Sharding> convene(const ShardingConfig& c,
                                                         const std::shared_ptr<distributed::World>& world,
                                                         at::Device device = at::Device(at::kCPU)) {
    if (world->size() == 1) return nullptr;
    const int ranks = world->size(), rank = world->rank(), experts = static_cast<int>(c.expert_size);
    const std::int64_t groups = ranks / c.context_size;
    const int shards =
        c.shards ? static_cast<int>(c.context_size * c.shard_size.value_or(groups / c.replicate_size.value_or(1))) : 1;
    const auto convened = [&](const auto& belongs) {
      std::vector<int> list;
      for (int r = 0; r < ranks; ++r)
        if (belongs(r)) list.push_back(r);
      return world->convene(list, device);
    };
    const auto neighbours = [&](int size) { return convened([&](int r) { return r / size == rank / size; }); };
    const auto alike = [&](int size) { return convened([&](int r) { return r % size == rank % size; }); };
    auto out = std::make_shared<Sharding>();
    out->world_ = world;
    out->config_ = c.config;
    out->file_of_each_ = c.file_of_each;
    const std::shared_ptr<distributed::Team> together = neighbours(std::max(shards, experts));
    out->teams_.rounds = std::make_shared<distributed::PassRounds>(together);
    out->teams_.shards = shards >= experts ? together
                         : shards > 1      ? neighbours(shards)
                                           : std::make_shared<distributed::Team>();
    out->teams_.replicas = alike(shards);
    if (experts > 1) {
      out->teams_.experts = neighbours(experts);
      out->teams_.expert_replicas = alike(experts);
    }
    world->before_meeting([rounds = std::weak_ptr(out->teams_.rounds)] {
      if (const auto held = rounds.lock()) held->settle();
    });
    return out;
  }

  // The policy, from here on.
  void hold(model::Decoder& policy) { policy_ = distributed::ShardedWeights::shard(policy, config_, teams_); }
  [[nodiscard]] std::shared_ptr<trainer::Placement> placement() const {
    return std::make_shared<trainer::ShardedPlacement>(policy_, world_);
  }
  // A policy that is not trained, on its own. Experts that do not divide among the ranks are held as everything else.
  void hold_frozen(model::Decoder& decoder) {
    distributed::ShardTeams teams = teams_;
    bool any = false, divides = teams.experts != nullptr;
    for (const model::LayerSpec& spec : decoder.config().specs) {
      any = any || spec.experts.count > 0;
      divides = divides && spec.experts.count % teams.experts->size() == 0;
    }
    if (!any || !divides) teams.experts = teams.expert_replicas = nullptr;
    if (config_.stage == distributed::ShardStage::weights || teams.experts != nullptr)
      (void)distributed::ShardedWeights::shard(decoder, config_, std::move(teams));
  }
  // The reference of a policy (model::Decoder::reference).
  [[nodiscard]] std::shared_ptr<model::Decoder> reference(const model::Decoder& policy) {
    if (!weights()) return policy.reference();
    if (policy.adapter() == nullptr) return frozen_copy(policy);
    policy_->gather_all();  // what is copied of an adapter stays whole on every rank
    std::shared_ptr<model::Decoder> out = policy.reference();
    policy_->release_all();
    return out;
  }
  // The policy as it is now, not trained: held as the policy is.
  [[nodiscard]] std::shared_ptr<model::Decoder> frozen_copy(const model::Decoder& policy) {
    if (!weights()) return policy.frozen_copy();
    return policy_->frozen_copy(policy);
  }
  // In how many files the model is saved.
  [[nodiscard]] std::int64_t files() const { return file_of_each_ ? policy_->team().size() : 1; }
  // Whether a rank lacks weights between passes.
  [[nodiscard]] bool weights() const {
    return config_.stage == distributed::ShardStage::weights || teams_.experts != nullptr;
  }
  [[nodiscard]] const std::shared_ptr<distributed::ShardedWeights>& policy() const { return policy_; }

 private:
  std::shared_ptr<distributed::World> world_;
  distributed::ShardConfig config_;
  bool file_of_each_ = false;
  distributed::ShardTeams teams_;
  std::shared_ptr<distributed::ShardedWeights> policy_;
};

// What makes a reference follow a policy, wherever both lie; `sharding` may be null.
[[nodiscard]] inline std::shared_ptr<trainer::Companion> reference_sync(trainer::ReferenceSync::Config settings,
                                                                        const model::Decoder& policy,
                                                                        const model::Decoder& reference,
                                                                        const Sharding* sharding) {
  if (sharding == nullptr || !sharding->weights())
    return std::make_shared<trainer::ReferenceSync>(settings, policy.named_tensors(), reference.named_tensors());
  return std::make_shared<trainer::ReferenceSync>(
      settings, sharding->policy(), std::dynamic_pointer_cast<distributed::ShardedWeights>(reference.gate()),
      reference.named_tensors());
}

}  // namespace rlalgo::assembly
