// A group of ranks that exchange tensors while they compute: those that hold the shards of one model, or the pieces of one
// sequence. World::convene makes it; all ranks of the run call that together.
//
//   Pending there = team.all_gather(whole, part);     runs asynchronously
//   … compute …
//   there.wait();                                     `whole` can be read
//
// All ranks of a team begin the same operations in the same order, from one thread; each runs after the one before. What is
// added is added in the order of the ranks, so results have the same bits on all of them, and for any number of ranks the same sum of the same
// addends; or in the order of the GPUs' library (SumOrder), where the bits are the same on all ranks and at every repetition, no more. Tensors
// are contiguous, those of an operation all of the team's device or all of the CPU; any type, bytes are copied. Until wait() returns nobody
// may write to what is sent or touch what is received; the operation keeps both alive.
//
// Of a GPU an operation comes behind what the caller's stream was given, and wait() puts what that stream is given next behind the operation:
// the host goes on at once. Tensors of the CPU have then arrived.
//
// Waiting follows the rules of the World: a rank that computes is waited for, one that is silent for its `seconds` or that
// failed ends the wait with the World's error. Ranks that give up what is under way (World::give_up) begin a new order():
// operations of the one before are void. One rank is the default: everything is there at once.
//
// Errors: [rlalgo.distributed.11] tensors that do not fit an operation; and those of the World.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::distributed {

using tensor::Tensor;

// In which order ranks' tensors are added where a GPU's library could do it: that of the ranks, or the library's.
enum class SumOrder { ranks, library };

// An operation under way; empty: none, or one that has ended.
class Pending {
 public:
  class Operation {
   public:
    Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    virtual ~Operation() = default;
    virtual void wait() = 0;  // raises what went wrong
  };

  Pending() = default;
  explicit Pending(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

  [[nodiscard]] bool under_way() const { return operation_ != nullptr; }
  void wait() {
    if (const auto operation = std::exchange(operation_, nullptr)) operation->wait();
  }
  // Nobody will wait for it.
  void forget() { operation_ = nullptr; }

 private:
  std::shared_ptr<Operation> operation_;
};

class Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  virtual ~Team() = default;

  // The place of this rank among those of the team, in the order in which they were convened.
  [[nodiscard]] virtual int rank() const { return 0; }
  [[nodiscard]] virtual int size() const { return 1; }
  // Where its tensors are.
  [[nodiscard]] virtual at::Device device() const { return at::Device(at::kCPU); }
  // Seconds that operations have been at work so far, while the rank computed or waited.
  [[nodiscard]] virtual double busy() const { return 0.0; }
  // Whether sums of its device's tensors are added by the library there, in an order of its own.
  [[nodiscard]] virtual bool sums_natively() const { return false; }
  // Another number after ranks have given up; asked between operations.
  [[nodiscard]] virtual std::uint64_t order() { return 0; }

  // sent[r] goes to rank r, and received[r] comes from it: one entry each, undefined where nothing goes or comes. What a rank
  // sends to itself is copied at once, unless it is where it should be. `operation` is what errors call it.
  [[nodiscard]] Pending exchange(const std::string& operation, const std::vector<Tensor>& sent,
                                 const std::vector<Tensor>& received);

  // whole [n·k …] ← the parts [k …] of all ranks in their order. `part` may be its place in `whole`.
  [[nodiscard]] Pending all_gather(const Tensor& whole, const Tensor& part);
  // received [n·k …]: rank r's slice number rank() of `sent` [n·k …], in the place of r; all that a reduce-scatter has to add.
  [[nodiscard]] Pending all_to_all(const Tensor& received, const Tensor& sent);
  // From the rank `by` places before (cyclic), to the one as many behind. The sizes may differ between ranks.
  [[nodiscard]] Pending shift(const Tensor& received, const Tensor& sent, int by = 1);
  // Where sums_natively(): sum [k …] ← over all ranks, their parts number rank() of `sent` [n·k …]; float32 or float64.
  [[nodiscard]] Pending add_shards(const Tensor& sum, const Tensor& sent);
  // Element-wise sum over the ranks, in place, in buckets: float32 or float64, others are added in float32. Added in the order of
  // the ranks, an element's bits do not depend on what else is summed.
  [[nodiscard]] Pending begin_sum(const std::string& operation, std::vector<Tensor> tensors);
  // The same; waits.
  void sum(std::span<Tensor> tensors);

 protected:
  // Hands tensors round and waits, within an operation: as exchange(), without this rank's own entries.
  using Round = std::function<void(const std::vector<Tensor>& sent, const std::vector<Tensor>& received)>;

 private:
  void check_places(const std::string& operation, const std::vector<Tensor>& tensors) const;
  // An operation of several rounds, with arithmetic between them: `work` runs on a thread of its own while the rank computes. `of`: the
  // tensors that it is of.
  RLALGO_INLINE virtual Pending begin_rounds(const std::string& operation, const std::vector<Tensor>& of,
                                             std::function<void(const Round&)> work);
  // The same without this rank's own entries.
  RLALGO_INLINE virtual Pending begin(const std::string& operation, std::vector<Tensor> sent,
                                      std::vector<Tensor> received);
  // By the library's own operations; nothing: there are none for these tensors.
  [[nodiscard]] virtual std::optional<Pending> begin_gather(const std::string& /*operation*/, const Tensor& /*whole*/,
                                                            const Tensor& /*part*/) {
    return std::nullopt;
  }
  [[nodiscard]] virtual std::optional<Pending> begin_native_sum(const std::string& /*operation*/,
                                                                const std::vector<Tensor>& /*tensors*/) {
    return std::nullopt;
  }
  // Asked where sums_natively().
  [[nodiscard]] virtual Pending begin_native_shards(const std::string& /*operation*/, const Tensor& /*sum*/,
                                                    const Tensor& /*sent*/) {
    return {};
  }
};

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/team_impl.hpp>
#endif
