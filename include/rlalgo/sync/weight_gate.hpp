// A gate between a generator that runs asynchronously and the policy that publishes weights to it: a publish takes place between
// two calls of the generator.
//
//   producer's thread:  GatedGenerator::generate   one call at a time
//   trainer's thread:   GatedSync::publish         between two calls, where weights change under a call otherwise
//
// A server's weights change while it generates, and a completion of several turns asks an engine more than once; there a
// publish is exclusive: it waits for the call under way and none begins before it is through (gate_state.hpp), so that a completion
// has one version. An engine on a snapshot keeps the weights that a call began with, and needs no wait.
// Completions whose generator does not know its weights get the version that was in force when the call began.
//
// Several ranks, each with a generator of its own: their asynchronous calls have one version. They exchange which
// version each would take, and ranks that are behind wait until their trainer has published the latest of these. All trainers
// publish a version together.
// Around these two stand, where a run has them, servers that are started anew (recovering.hpp) and calls that are recorded or repeated
// (scheduled.hpp); asynchronous.hpp puts them together.
//
// Both ends hold the same WeightGate; generator and policy stay their owners'. Every wait ends with what it waits for, or when the
// gate is stopped.
// Errors: [rlalgo.os.8] a stop was asked for while a call waited for its weights; those of generator and policy.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/gate_state.hpp>

namespace rlalgo::sync {

class WeightGate {
 public:
  explicit WeightGate(std::stop_token stop = {}) : stop_(std::move(stop)) {}

  [[nodiscard]] std::int64_t version() const { return read(&GateState::version); }
  // GateState says what these are.
  void doubt() {
    changing([](GateState& s) { s.doubt(); });
  }
  [[nodiscard]] bool doubted() const { return read(&GateState::doubted); }
  void lose() {
    changing([](GateState& s) { s.lose(); });
  }
  [[nodiscard]] bool lost() const { return read(&GateState::lost); }

  // Of the thread that generates: held while the generator is called.
  class Call {
   public:
    explicit Call(WeightGate& gate) : gate_(&gate) {
      std::unique_lock lock(gate.mutex_);
      gate.changed_.wait(lock, [&] { return gate.state_.may_call(); });
      gate.state_.begin_call();
      version_ = gate.state_.version();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
      gate_->changing([](GateState& s) { s.end_call(); });
    }
    [[nodiscard]] std::int64_t version() const { return version_; }  // in force when it began

   private:
    WeightGate* gate_;
    std::int64_t version_ = -1;
  };
  // Returns when this version or a later one is in force. [rlalgo.os.8]
  void wait_for(std::int64_t version) {
    wait_until([&](const GateState& s) { return s.version() >= version; });
  }
  // Returns when lost weights are back. [rlalgo.os.8]
  void wait_for_recovery() {
    wait_until([](const GateState& s) { return !s.lost(); });
  }

  // Of the thread that publishes: while weights change.
  class Change {
   public:
    Change(WeightGate& gate, bool exclusive) : gate_(&gate), exclusive_(exclusive) {
      std::unique_lock lock(gate.mutex_);
      gate.trainer_ = std::this_thread::get_id();
      if (!exclusive) return;
      gate.state_.wait_to_publish();
      gate.changed_.wait(lock, [&] { return gate.state_.may_publish(); });
      gate.state_.begin_publish();
    }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    ~Change() {
      if (exclusive_) gate_->changing([](GateState& s) { s.end_publish(); });
    }
    void done(std::int64_t version) {
      gate_->changing([&](GateState& s) { s.put_in_force(version); });
    }

   private:
    WeightGate* gate_;
    bool exclusive_;
  };

  // Whether this thread published last: its calls do not wait for another one.
  [[nodiscard]] bool on_trainer() const {
    const std::lock_guard lock(mutex_);
    return trainer_ == std::this_thread::get_id();
  }
  [[nodiscard]] const std::stop_token& stop() const noexcept { return stop_; }
  // Before any other thread has the gate.
  void stop_with(std::stop_token stop) { stop_ = std::move(stop); }

 private:
  template <class T>
  T read(T (GateState::*what)() const noexcept) const {
    const std::lock_guard lock(mutex_);
    return (state_.*what)();
  }
  template <class Step>
  void changing(Step&& step) {
    {
      const std::lock_guard lock(mutex_);
      step(state_);
    }
    changed_.notify_all();
  }
  template <class Condition>
  void wait_until(Condition&& condition) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop_, [&] { return condition(state_); }))
      os::raise_interrupted("os", 8, {.what = "interrupted while a call waited for its weights"});
  }

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  GateState state_;
  std::thread::id trainer_;
  std::stop_token stop_;
};

// Of several ranks that generate, each for itself: how their asynchronous calls come to one version.
struct CallingRanks {
  std::shared_ptr<distributed::World> world = nullptr;  // where their callers meet; null: one rank
  // Takes the weights of the next call, and says their version; empty: those in force.
  std::function<std::int64_t()> hold = {};
};

template <inference::Generator G>
class GatedGenerator {
 public:
  static constexpr inference::WeightSource weights = G::weights;
  static constexpr inference::GeneratorHooks hooks{.quantizes = true};
  using Completions = std::vector<std::vector<data::Completion>>;

  GatedGenerator(G& generator, std::shared_ptr<WeightGate> gate, CallingRanks ranks = {})
      : generator_(&generator), gate_(std::move(gate)), ranks_(std::move(ranks)) {}

  // One call, and what became of it.
  struct Attempt {
    Completions completions;
    std::int64_t version = -1;  // in force when it began
    bool doubted = false;       // GateState::doubt
    std::exception_ptr failure;
  };
  Attempt attempt(std::span<const inference::Request> requests, const inference::SamplingConfig& sampling,
                  inference::DrawKey key) {
    for (const bool agrees = ranks_.world != nullptr && !gate_->on_trainer();;) {
      std::optional<WeightGate::Call> call(std::in_place, *gate_);
      if (agrees)
        if (const std::int64_t latest = latest_of_ranks(call->version()); latest >= 0) {
          call.reset();
          gate_->wait_for(latest);
          continue;
        }
      Attempt out{.completions = {}, .version = call->version(), .doubted = false, .failure = nullptr};
      try {
        if (!requests.empty()) out.completions = generator_->generate(requests, sampling, key);
      } catch (...) {
        out.failure = std::current_exception();
      }
      out.doubted = gate_->doubted();
      return out;
    }
  }
  // An attempt whose completions know their weights.
  Completions generate(std::span<const inference::Request> requests, const inference::SamplingConfig& sampling,
                       inference::DrawKey key) {
    return accepted(attempt(requests, sampling, key));
  }
  static Completions accepted(Attempt attempt) {
    if (attempt.failure) std::rethrow_exception(attempt.failure);
    for (auto& group : attempt.completions)
      for (data::Completion& completion : group)
        if (completion.weights_version < 0) completion.weights_version = attempt.version;
    return std::move(attempt.completions);
  }

  [[nodiscard]] inference::WeightSource source() const { return inference::source_of(*generator_); }
  [[nodiscard]] bool quantizes() const { return inference::quantizes(*generator_); }
  [[nodiscard]] WeightGate& gate() const { return *gate_; }

 private:
  // Below 0: all ranks would take the same version.
  std::int64_t latest_of_ranks(std::int64_t in_force) {
    const std::int64_t own = ranks_.hold ? ranks_.hold() : in_force;
    std::int64_t least = own, most = own;
    for (const std::string& one : ranks_.world->gather("version of the weights", std::to_string(own))) {
      least = std::min<std::int64_t>(least, std::stoll(one));
      most = std::max<std::int64_t>(most, std::stoll(one));
    }
    return least == most ? -1 : most;
  }

  G* generator_;
  std::shared_ptr<WeightGate> gate_;
  CallingRanks ranks_;
};

// Of several ranks: where their trainers meet.
struct PublishingRanks {
  std::shared_ptr<distributed::World> trainers =
      nullptr;  // before a version is handed over: all generate with it; null: one rank
  std::shared_ptr<distributed::World> sources =
      nullptr;  // after it: each has a shard of the weights; null: they are whole
};

template <SyncPolicy Y>
class GatedSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return Y::reaches(source); }
  static constexpr Hooks hooks{.serves = true};

  GatedSync(Y policy, std::shared_ptr<WeightGate> gate, bool exclusive, PublishingRanks ranks = {})
      : policy_(std::make_shared<Y>(std::move(policy))),
        gate_(std::move(gate)),
        exclusive_(exclusive),
        ranks_(std::move(ranks)) {}

  Published publish(std::int64_t version) {
    const bool moves = version != gate_->version();
    if (moves && ranks_.trainers != nullptr) ranks_.trainers->barrier("hand-over of the weights");
    const Published out = hand_over(version);
    if (moves && ranks_.sources != nullptr) ranks_.sources->barrier("hand-over of the weights");
    return out;
  }
  // The same of this rank alone.
  Published hand_over(std::int64_t version) {
    WeightGate::Change change(*gate_, exclusive_);
    const Published out = policy_->publish(version);
    change.done(version);
    return out;
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [gate = gate_] { return gate->version(); };
  }
  [[nodiscard]] bool serves(inference::WeightSource source) const { return sync::serves(*policy_, source); }

 private:
  std::shared_ptr<Y> policy_;
  std::shared_ptr<WeightGate> gate_;
  bool exclusive_;
  PublishingRanks ranks_;
};

}  // namespace rlalgo::sync
