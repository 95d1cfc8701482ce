// A gate between a generator that runs asynchronously and the policy that publishes weights to it: a publish takes place between
// two calls of the generator.
//
//   producer's thread:  GatedGenerator::generate   one call at a time
//   trainer's thread:   GatedSync::publish         between two calls, where weights change under a call otherwise
//
// A server's weights change while it generates, and a completion of several turns asks an engine more than once; there a
// publish waits for the call under way and none begins before it is through (`exclusive`), so that a completion has one
// version. An engine on a snapshot keeps the weights that a call began with, and needs no wait.
// Completions whose generator does not know its weights get the version that was in force when the call began.
//
// A server that is started anew has lost its weights and its adapter. That shows by a connection that breaks
// (WeightGate::doubt), or by completions that no longer say the version which was published. What
// the call brought is thrown away, the weights in force are handed over again, as soon as the server is up, and the call
// is repeated, a few times at most. The trainer's tensors may change meanwhile: so it is the trainer's thread that hands
// over, in publish() or, where it waits for the generator, in restore_if_lost(); a generator that it asks itself does so
// at once.
// Several ranks, each with a generator of its own: their asynchronous calls have one version. They exchange which
// version each would take, and ranks that are behind wait until their trainer has published the latest of these. All trainers
// publish a version together, so that the schedule of rank 0 holds for all.
// Sharded weights cannot be published again while all trainers wait for an asynchronous generation: no rank is free to send its shards.
// With a CallSchedule the calls of the producer are recorded, or repeated with the versions that they had.
// Errors: [rlalgo.sync.4] the server loses its weights again and again; [.11] it has lost weights that are sharded; [rlalgo.os.8] a stop was asked for while a server
// waited for its weights; those of call_schedule.hpp, generator and policy.
//
// Both ends hold the same WeightGate; generator and policy stay their owners'. Every call ends by a deadline of its own or
// when it is asked to stop, so the waits here do.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
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
#include <rlalgo/sync/call_schedule.hpp>
#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

struct WeightGate {
  std::mutex mutex;                       // held while the generator is called, and while its weights change
  std::atomic<std::int64_t> version{-1};  // published last
  // Of servers that may be started anew:
  std::atomic<bool> doubt{false};               // a connection broke within the call or hand-over under way
  std::atomic<bool> lost{false};                // the weights are to be handed over again
  std::atomic<std::thread::id> trainer{};       // that publishes
  std::function<void(std::int64_t)> hand_over;  // the trainer's, of a version
  std::stop_token stop;                         // ends the wait for it
  // Where weights are sharded: the ranks that take part in a publish, and end it together. Null: weights are whole.
  std::shared_ptr<distributed::World> sources;
  // Of calls on another thread than the trainer's; null: they take what is in force.
  std::shared_ptr<CallSchedule> schedule;
  // Of several ranks, each of which generates: where their trainers meet, and where their asynchronous callers do.
  std::shared_ptr<distributed::World> trainers, callers;
  std::function<std::int64_t()>
      hold;  // takes the weights of the next call, and says their version; empty: those in force
};

namespace detail {

// A server that went away, or does not know what was begun with it; not one that lets a deadline pass.
[[nodiscard]] inline bool may_be_restart(const core::Error& e, const WeightGate& gate) {
  if (e.room() != "http" || os::Interruption::requested()) return false;
  return e.number() == 2 || (e.number() == 1 && gate.doubt);
}

}  // namespace detail

template <inference::Generator G>
class GatedGenerator {
 public:
  static constexpr inference::WeightSource weights = G::weights;
  static constexpr inference::GeneratorHooks hooks{.quantizes = true};

  GatedGenerator(G& generator, std::shared_ptr<WeightGate> gate) : generator_(&generator), gate_(std::move(gate)) {}

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey key) {
    const bool asynchronous = std::this_thread::get_id() != gate_->trainer.load();
    if (gate_->schedule == nullptr || !asynchronous) return attempt_all(requests, sampling, key, asynchronous);
    CallSchedule& schedule = *gate_->schedule;
    try {
      schedule.begin(key.step, gate_->stop);
      Completions out = attempt_all(requests, sampling, key, asynchronous);
      schedule.end(out.empty() || out.front().empty() ? gate_->version.load() : out.front().front().weights_version);
      return out;
    } catch (...) {
      schedule.give_up();
      throw;
    }
  }
  [[nodiscard]] inference::WeightSource source() const { return inference::source_of(*generator_); }
  [[nodiscard]] bool quantizes() const { return inference::quantizes(*generator_); }

 private:
  using Completions = std::vector<std::vector<data::Completion>>;
  static constexpr int most = 4;  // attempts of a call

  // With the turn, as the ranks agreed.
  std::unique_lock<std::mutex> lock_gate(bool asynchronous) {
    for (;;) {
      std::unique_lock lock(gate_->mutex);
      if (!asynchronous || gate_->callers == nullptr) return lock;
      const std::int64_t own = gate_->hold ? gate_->hold() : gate_->version.load();
      std::int64_t least = own, most = own;
      for (const std::string& one : gate_->callers->gather("version of the weights", std::to_string(own))) {
        least = std::min<std::int64_t>(least, std::stoll(one));
        most = std::max<std::int64_t>(most, std::stoll(one));
      }
      if (least == most) return lock;
      lock.unlock();
      while (gate_->version < most) {
        if (gate_->stop.stop_requested())
          os::raise_interrupted("os", 8, {.what = "interrupted while a call waited for its weights"});
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
  }

  Completions attempt_all(std::span<const inference::Request> requests, const inference::SamplingConfig& sampling,
                          inference::DrawKey key, bool asynchronous) {
    for (int attempt = 1;; ++attempt) {
      {
        const std::unique_lock lock = lock_gate(asynchronous);
        if (requests.empty()) return {};
        const std::int64_t version = gate_->version;
        gate_->doubt = false;
        try {
          Completions out = generator_->generate(requests, sampling, key);
          if (!can_lose() || (!gate_->doubt && !forgot(out, version))) {
            for (auto& group : out)
              for (data::Completion& completion : group)
                if (completion.weights_version < 0) completion.weights_version = version;
            return out;
          }
        } catch (const core::Error& e) {
          if (!can_lose() || e.number() != 1 || !detail::may_be_restart(e, *gate_) || attempt == most) throw;
        }
      }
      if (attempt == most)
        core::raise("sync", 4,
                    {.what = "the server loses its weights again and again",
                     .found = std::to_string(most) + " times within one call",
                     .remedy = "look at its log: it may be started anew in a loop, or serve another trainer, too"});
      restore();
    }
  }

  [[nodiscard]] bool can_lose() const {
    return source() == inference::WeightSource::remote && gate_->hand_over != nullptr;
  }

  // Whether a server that used to say the version of its completions does not say `version`.
  [[nodiscard]] bool forgot(const Completions& out, std::int64_t version) {
    bool other = false;
    for (const auto& group : out)
      for (const data::Completion& completion : group) {
        tells_ = tells_ || completion.weights_version >= 0;
        other = other || completion.weights_version != version;
      }
    return tells_ && other;
  }

  void restore() {
    gate_->lost = true;
    if (std::this_thread::get_id() == gate_->trainer.load()) return gate_->hand_over(gate_->version);
    while (gate_->lost) {
      if (gate_->stop.stop_requested())
        os::raise_interrupted("os", 8, {.what = "interrupted while a server waited for its weights"});
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  bool tells_ = false;
  G* generator_;
  std::shared_ptr<WeightGate> gate_;
};

template <SyncPolicy Y>
class GatedSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return Y::reaches(source); }
  static constexpr Hooks hooks{.serves = true};

  GatedSync(Y policy, std::shared_ptr<WeightGate> gate, bool exclusive)
      : policy_(std::make_shared<Y>(std::move(policy))), gate_(std::move(gate)), exclusive_(exclusive) {
    if constexpr (hooks_of<Y>().forget)
      gate_->hand_over = [policy = policy_, gate = gate_.get(), exclusive](std::int64_t version) {
        hand_over(*policy, *gate, exclusive, version);
      };
  }

  Published publish(std::int64_t version) {
    const bool moves = version != gate_->version;
    const Published out = hand_over(*policy_, *gate_, exclusive_, version, gate_->trainers.get());
    if (moves && gate_->sources != nullptr) gate_->sources->barrier("hand-over of the weights");
    return out;
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [gate = gate_] { return gate->version.load(); };
  }
  [[nodiscard]] bool serves(inference::WeightSource source) const {
    if constexpr (hooks_of<Y>().serves)
      return policy_->serves(source);
    else
      return reaches(source);
  }

 private:
  static Published hand_over(Y& policy, WeightGate& gate, bool exclusive, std::int64_t version,
                             distributed::World* trainers = nullptr) {
    if (gate.schedule != nullptr && version != gate.version) gate.schedule->before_publish(version);
    if (trainers != nullptr && version != gate.version) trainers->barrier("hand-over of the weights");
    std::unique_lock lock(gate.mutex, std::defer_lock);
    if (exclusive) lock.lock();
    gate.trainer = std::this_thread::get_id();
    const auto publish = [&] {
      if constexpr (hooks_of<Y>().forget)
        if (gate.lost) policy.forget();
      const Published published = policy.publish(version);
      gate.version = version;
      if (gate.schedule != nullptr) gate.schedule->published(version);
      gate.lost = false;
      return published;
    };
    try {
      gate.doubt = false;
      return publish();
    } catch (const core::Error& e) {
      if (gate.hand_over == nullptr || !detail::may_be_restart(e, gate)) throw;
      gate.lost = true;
    }
    return publish();  // once more, from the beginning
  }

  std::shared_ptr<Y> policy_;
  std::shared_ptr<WeightGate> gate_;
  bool exclusive_;
};

// On the trainer's thread, while it waits for the generator: hands the weights over as `version`, if a server waits for
// them.
inline void restore_if_lost(const WeightGate& gate, std::int64_t version) {
  if (!gate.lost || !gate.hand_over) return;
  if (gate.sources != nullptr)
    core::raise("sync", 11,
                {.what = "the server was started anew and has lost its weights, which are sharded over several ranks",
                 .found = "an asynchronous generation, for which all ranks wait",
                 .remedy = "start the run again from its last checkpoint (--max-restarts does), or set "
                           "trl.async_prefetch: false"});
  gate.hand_over(version);
}

}  // namespace rlalgo::sync
