// The ranks of a run: collective operations on host values, and how work is divided among the ranks. One rank is the default, and costs
// nothing; distributed::join_world gives a World of several processes (process_world.hpp).
//
// All ranks call the same operations in the same order; each ends on all ranks, or fails on all. Results have the same
// bits on all ranks, so what is computed from them alike stays alike. Host values are added in the order of the ranks.
//
// Ranks are neighbours in context groups (context parallel): those of a group train on the same rows, each on a share of their
// tokens (model/context_sharing.hpp), and know the same of them; the first of a group speaks for it. Rows are shared by groups,
// everything else by ranks. One rank is the default group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/metrics.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::distributed {

using tensor::Tensor;

// Of a list of things in order, those from `begin` to before `end`.
struct Share {
  std::size_t begin = 0, end = 0;
  [[nodiscard]] std::size_t size() const { return end - begin; }
};

class World {
 public:
  virtual ~World() = default;
  [[nodiscard]] virtual int rank() const { return 0; }
  [[nodiscard]] virtual int size() const { return 1; }

  // What each rank gives, in the order of the ranks; of any length. `operation` is what errors call it.
  virtual std::vector<std::string> gather(const std::string& /*operation*/, std::string bytes) {
    std::vector<std::string> out;
    out.push_back(std::move(bytes));
    return out;
  }
  // Element-wise sum (never mean) over ranks, in place: tensors of the same shapes on all ranks.
  virtual void sum(std::span<Tensor> /*tensors*/) {}
  // Errors name the step from here on, counted from 1.
  virtual void enter(std::int64_t /*step*/) {}
  // This rank cannot go on: every other one that waits, or is going to, fails with `text`. The first failure counts.
  virtual void fail(const std::string& /*text*/) noexcept {}
  // Whether no other rank has said `text` before: of an error that all of them raise, one speaks.
  [[nodiscard]] virtual bool first_to_say(const std::string& /*text*/) noexcept { return true; }

  // What is under way is given up since a stop was asked for (os::Interruption): every other rank that waits, or is going
  // to, raises os::Interrupted and calls it, too. Then all begin a new order of operations: the World goes on.
  virtual void give_up(int /*signal*/) {}
  // Raises what an operation that waits would raise now: another rank has failed, or has given up.
  virtual void check() {}
  // Numbers that came by teams of GPUs are good if this raises nothing after they were read. It does not look at what ranks say of
  // themselves: one that fails elsewhere may still need this one to come to where it says so.
  virtual void check_teams() {}

  // The same ranks for another thread of each, which meets those of the others in an order of its own: host values only. The
  // threads of a World share its failures. null: this one will do, there is one rank.
  [[nodiscard]] virtual std::shared_ptr<World> duplicate(const std::string& /*name*/) { return nullptr; }
  // Some of the ranks as a team (team.hpp), this one among them, for tensors of `device`: of a GPU each rank has its own. All
  // ranks of the World call it together, those of one team with the same list; the World outlives it. On the thread of this World
  // only, and while none of its operations is under way.
  [[nodiscard]] virtual std::shared_ptr<Team> convene(const std::vector<int>& /*ranks*/,
                                                      at::Device /*device*/ = at::Device(at::kCPU)) {
    return std::make_shared<Team>();
  }
  // Called before this thread meets the others in an operation of this World: what a team has under way ends first.
  virtual void before_meeting(std::function<void()> /*settle*/) {}
  // Called about every 50 ms while this rank waits for another one; what it raises ends the wait.
  virtual void while_waiting(std::function<void()> /*tick*/) {}

  // How tensors of GPUs are added (team.hpp); of teams that are convened later, and the same on all ranks.
  void set_sum_order(SumOrder order) { sum_order_ = order; }
  [[nodiscard]] SumOrder sum_order() const { return sum_order_; }

  // Ranks of a context group; they divide the ranks. Said once, before training.
  void set_context_size(int ranks) { context_size_ = ranks; }
  [[nodiscard]] int context_size() const { return context_size_; }
  [[nodiscard]] int groups() const { return size() / context_size_; }
  [[nodiscard]] int group_of(int rank) const { return rank / context_size_; }
  [[nodiscard]] int group() const { return group_of(rank()); }
  // Whether a rank speaks for its group.
  [[nodiscard]] bool leads_group(int rank) const { return rank % context_size_ == 0; }
  [[nodiscard]] bool leads_group() const { return leads_group(rank()); }

  // Element-wise over ranks, in place.
  void sum(std::span<double> values);
  void minimum(std::span<double> values);
  void maximum(std::span<double> values);
  // What `root` gives.
  [[nodiscard]] std::string broadcast(const std::string& operation, std::string bytes, int root = 0);
  // Returns when all ranks have called it.
  void barrier(const std::string& operation);
  // Every group's metrics, merged in their order: those of one rank that has seen everything.
  [[nodiscard]] core::Metrics merged(const core::Metrics& metrics);

  // The part of `count` things that is this rank's, or another one's: neighbours, shares of equal size but for one.
  [[nodiscard]] Share share(std::size_t count) const { return share(count, rank()); }
  [[nodiscard]] Share share(std::size_t count, int rank) const {
    const auto ranks = static_cast<std::size_t>(size()), r = static_cast<std::size_t>(rank);
    return {count * r / ranks, count * (r + 1) / ranks};
  }
  // Of rows, which groups share.
  [[nodiscard]] Share share_of_rows(std::size_t count) const {
    const auto all = static_cast<std::size_t>(groups()), own = static_cast<std::size_t>(group());
    return {count * own / all, count * (own + 1) / all};
  }

 private:
  int context_size_ = 1;
  SumOrder sum_order_ = SumOrder::ranks;
};

// Numbers as bytes, for gather().
[[nodiscard]] std::string to_bytes(std::span<const float> values);
[[nodiscard]] std::string to_bytes(std::span<const double> values);
[[nodiscard]] std::vector<float> floats_of(const std::string& bytes);
[[nodiscard]] std::vector<double> doubles_of(const std::string& bytes);

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/world_impl.hpp>
#endif
