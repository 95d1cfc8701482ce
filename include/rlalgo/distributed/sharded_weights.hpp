// A decoder whose weights, gradients and optimizer states are sharded over the ranks of a team (ZeRO, FSDP).
//
//   stage                         weights          gradients                         optimizer
//   none                          whole            summed once a step                whole
//   optimizer_states  (ZeRO 1)    whole            summed into shards once a step    shards
//   gradients         (ZeRO 2)    whole            … behind every backward pass      shards
//   weights  (ZeRO 3, FSDP)       shards; a layer  … behind every layer              shards
//                                 is whole while it computes
//
// One FlatUnit per layer, dtype and "trained or not", and those of what lies outside of the layers. With `weights` it is the
// gate of the decoder (model/layer_gate.hpp): layer i + 1 is gathered while i computes, forward and backward, and its memory is
// used again when it is done; gradients of layer i are on their way while i − 1 is differentiated. What lies outside of the
// layers is whole from a pass's begin to the end of the backward pass. The optimizer updates parameters(), the parts of trained
// tensors in this rank's shards; a tensor may be in several, or in none of this one.
//
// Experts (expert_group.hpp) may be divided apart from all that: a rank of an expert team holds some of every layer's, whole, with their
// gradients and optimizer states, and passes bring it the rows of their tokens. Gradients of an expert come from all ranks of the team
// with these rows, and are summed over the ranks that hold it.
//
// Sums are added in the order of the ranks, in float32 (float64 for float64): the same number of ranks repeats itself to the bit.
// All ranks of the team take part in every pass (pass_rounds.hpp). What one rank alone writes or sends it fetches, one
// weight at a time, so that no rank ever holds all of them whole.
// Errors: [rlalgo.distributed.12] a weight that is not there is read outside of a fetch, or cannot be sharded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/distributed/expert_group.hpp>
#include <rlalgo/distributed/flat_unit.hpp>
#include <rlalgo/distributed/pass_rounds.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/layer_gate.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/policy.hpp>

namespace rlalgo::distributed {

enum class ShardStage { none = 0, optimizer_states = 1, gradients = 2, weights = 3 };

struct ShardConfig {
  ShardStage stage = ShardStage::weights;
  bool reshard_after_forward = true;  // of stage `weights`: else layers stay whole until their backward pass
};

// The ranks that hold a model, this one among them.
struct ShardTeams {
  std::shared_ptr<PassRounds> rounds = {};           // those whose passes go together: all of shards and of experts
  std::shared_ptr<Team> shards = {}, replicas = {};  // the shards of one copy; those that hold the same shard
  std::shared_ptr<Team> experts = {},
                        expert_replicas = {};  // the same of experts; null: they are held as everything else
};

class ShardedWeights final : public model::LayerGate, public model::WeightLender, public PassRounds::Member {
 public:
  // Takes the weights of the decoder over, as they are: the same on all ranks. `replicas`: the ranks that hold the same shard
  // (hybrid), or one.
  [[nodiscard]] static std::shared_ptr<ShardedWeights> shard(model::Decoder& decoder, ShardConfig config,
                                                             ShardTeams teams);
  // `rounds`' team holds the shards.
  [[nodiscard]] static std::shared_ptr<ShardedWeights> shard(model::Decoder& decoder, ShardConfig config,
                                                             std::shared_ptr<PassRounds> rounds,
                                                             std::shared_ptr<Team> replicas);
  RLALGO_INLINE ~ShardedWeights() override;

  [[nodiscard]] const ShardConfig& config() const { return config_; }
  [[nodiscard]] Team& team() const { return *teams_.shards; }
  [[nodiscard]] const std::shared_ptr<PassRounds>& rounds() const { return teams_.rounds; }
  // Null: experts are held as everything else.
  [[nodiscard]] const ExpertGroup* expert_group() const { return experts_.get(); }

  // see(unit), those outside of the layers first; or see(unit, whether this rank is the first of those that hold the same of it).
  template <class See>
  void visit(See&& see) {
    for (Group& group : groups_)
      for (Held& held : group.held) {
        if constexpr (std::is_invocable_v<See&, const FlatUnit&, bool>)
          see(held.unit, replicas_of(group).rank() == 0);
        else
          see(held.unit);
      }
  }

  // Tensors of the decoder that are in no unit: frozen, and whole on every rank.
  [[nodiscard]] const std::vector<Tensor>& others() const { return others_; }

  // What this rank's optimizer updates, sorted by name: flat parts of the trained tensors.
  [[nodiscard]] std::vector<model::Parameter> parameters();
  // Sums and absolute sums of all tensors as they were taken over.
  [[nodiscard]] const std::vector<double>& sums() const { return sums_; }

  // Seconds that this rank has waited for layers and gradients so far; what team().busy() has more was behind computing.
  [[nodiscard]] double waited() const { return waited_; }

  // All together from here on, between passes.
  // Every parameter's grad() is that of all ranks, where any of them had a backward pass; the square of their norm.
  double reduce_gradients() { return reduce_gradients_there().item<double>(); }
  // The same number where the gradients are, [] float64: the host need not wait for it.
  [[nodiscard]] Tensor reduce_gradients_there();
  // After the optimizer's update.
  void updated();
  // Makes all weights whole until the next pass of this decoder, or its next update. Returns whether they were not.
  bool gather_all();
  // Frees the memory of other ranks' shards again.
  void release_all();
  // One group of weights after the other is whole while `see` is called with its units.
  void each_whole(const std::function<void(const FlatUnit&)>& see);
  // ρ ← (1 − a)·ρ + a·π, shard by shard, π being these weights and ρ `reference`, a frozen_copy() of them.
  void blend_into(ShardedWeights& reference, double a);

  // Takes the values of all tensors from `stored`, by their names. All together.
  void load(const std::function<Tensor(const std::string&)>& stored);

  // This rank alone: while `use` runs, whole() fetches what lies on other ranks of the team, who serve it in their next round.
  void fetch_within(const std::function<void()>& use);
  [[nodiscard]] RLALGO_INLINE Tensor whole(const Tensor& weight) override;

  // A copy that is not trained, held in the same way.
  [[nodiscard]] std::shared_ptr<model::Decoder> frozen_copy(const model::Decoder& decoder);

  RLALGO_INLINE void begin(const Pass& pass) override;
  RLALGO_INLINE void end(const Pass& pass) override;
  RLALGO_INLINE void acquire(const Visit& visit) override;
  RLALGO_INLINE void release(const Visit& visit) noexcept override;
  RLALGO_INLINE void gradient_ready(std::int64_t layer) override;
  [[nodiscard]] std::int64_t seat(const model::DecoderWeights& weights) override {
    return experts_ != nullptr ? experts_->seat(weights) : 0;
  }
  [[nodiscard]] std::int64_t number() const override { return experts_ != nullptr ? experts_->number() : 0; }
  [[nodiscard]] model::ExpertExchange* experts() override { return experts_.get(); }

  RLALGO_INLINE void chosen(const Pass& pass) override;
  RLALGO_INLINE void help(const Pass& pass) override;
  RLALGO_INLINE void serve_fetch(int fetcher) override;
  RLALGO_INLINE void settled() override;
  RLALGO_INLINE void reset() noexcept override;

 private:
  // A unit, and what is under way with it.
  struct Held {
    FlatUnit unit;
    Tensor coming = {};  // memory that is being gathered into
    Pending gathering = {};
    Tensor sent = {}, received = {};
    Pending scattering = {};
    Tensor gradient = {};  // [shard], of this step; undefined: none yet
  };
  struct Group {
    std::vector<Held> held;
    bool whole = false, gathering = false, scattering = false;
    bool experts = false;  // of a layer
  };

  // Where a tensor's values lie.
  struct Place {
    std::size_t group = 0, held = 0, entry = 0;
  };

  ShardedWeights(const model::Decoder& decoder, ShardConfig config, ShardTeams teams);

  [[nodiscard]] bool gathers() const { return config_.stage == ShardStage::weights; }
  // Whether its weights are not whole on every rank; any weights.
  [[nodiscard]] bool parted(const Group& group) const { return group.experts || gathers(); }
  [[nodiscard]] bool parted() const { return experts_ != nullptr || gathers(); }
  // Gradients are sharded once a step.
  [[nodiscard]] bool sums_late() const { return config_.stage <= ShardStage::optimizer_states; }
  [[nodiscard]] Team& team_of(const Group& group) const { return group.experts ? *teams_.experts : *teams_.shards; }
  [[nodiscard]] Team& replicas_of(const Group& group) const {
    return group.experts ? *teams_.expert_replicas : *teams_.replicas;
  }
  // Of a group, in its rank's shards.
  [[nodiscard]] FlatUnit make_unit(std::vector<FlatUnit::Entry> entries, const Group& group, std::int64_t layer) const;
  [[nodiscard]] Group& layer(std::int64_t i) { return groups_[static_cast<std::size_t>(i) + 1]; }
  [[nodiscard]] Group& outside() { return groups_.front(); }
  // Layer of a group, or −1.
  [[nodiscard]] std::int64_t layer_of(std::size_t group) const {
    const std::int64_t at = static_cast<std::int64_t>(group) - 1;
    return groups_[group].experts ? at - config_of_model_.layers : at;
  }
  void take_over(const model::Decoder& decoder);
  void gather(Group& group);
  void arrive(Group& group);
  void free(Group& group);
  void scatter(Group& group);
  void add_scattered(Group& group);
  void list_places();
  // The number of what this rank, which fetches, wants next; -1: nothing more.
  void say(std::int64_t number);
  // Its pieces of the weight number `i` go to the fetcher, into `target` there.
  void hand_over(int fetcher, std::int64_t i, const Tensor& target);

  ShardConfig config_;
  ShardTeams teams_;
  model::DecoderConfig config_of_model_;
  std::unique_ptr<ExpertGroup> experts_;  // or null
  std::int64_t member_ = -1;
  std::vector<Group> groups_;  // what lies outside of the layers, then the layers, then the experts of each
  std::vector<Tensor> others_;
  std::vector<double> sums_;
  std::vector<model::Parameter> parameters_;
  FlatMemory memory_;
  std::vector<Group*> scattering_;  // in their order
  Pass pass_;
  std::int64_t open_ = 0;  // forward passes with a graph whose backward pass has not ended
  bool gathered_ = false, fetching_ = false;
  std::vector<Place> places_;                    // of all tensors, in the same order on all ranks
  std::map<const void*, std::int64_t> numbers_;  // of a tensor's memory, in places_
  double waited_ = 0.0;
};

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/sharded_weights_impl.hpp>
#endif
