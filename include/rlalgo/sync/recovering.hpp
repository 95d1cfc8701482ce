// Servers that are started anew, and have lost their weights and their adapter: decorators of a gate's two ends.
//
//   RecoveringGenerator   around GatedGenerator: a call that may not be of the published weights is thrown away and repeated
//   RecoveringSync        within GatedSync: a publish that finds the weights lost sends them from the beginning
//
// That weights are lost shows by a connection that breaks (GateState::doubt), or by completions that no longer say the version which
// was published. What the call brought is thrown away, the weights in force are handed over again, as soon as the server is up, and
// the call is repeated, a few times at most. The trainer's tensors may change meanwhile: so it is the trainer's thread that hands
// over, in publish() or, where it waits for the generator, in restore_if_lost(); a generator that it asks itself does so at once.
// Sharded weights cannot be published again while all trainers wait for an asynchronous generation: no rank is free to send its shards.
// Errors: [rlalgo.sync.4] the server loses its weights again and again; [.11] it has lost weights that are sharded; those of the gate.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/weight_gate.hpp>

namespace rlalgo::sync {

// What the generator's end and the trainer's share.
struct Recovery {
  std::function<void(std::int64_t)> hand_over = {};  // the trainer's, of a version; empty: nothing can be lost
  bool sharded = false;                              // weights lie in shards on several ranks
};

namespace detail {

// A server that went away, or does not know what was begun with it; not one that lets a deadline pass.
[[nodiscard]] inline bool may_be_restart(const core::Error& e, bool doubted) {
  if (e.room() != "http" || os::Interruption::requested()) return false;
  return e.number() == 2 || (e.number() == 1 && doubted);
}

}  // namespace detail

template <inference::Generator G>
class RecoveringGenerator {
 public:
  static constexpr inference::WeightSource weights = G::weights;
  static constexpr inference::GeneratorHooks hooks{.quantizes = true};
  using Completions = typename GatedGenerator<G>::Completions;

  RecoveringGenerator(GatedGenerator<G> generator, std::shared_ptr<const Recovery> recovery)
      : generator_(std::move(generator)), recovery_(std::move(recovery)) {}

  Completions generate(std::span<const inference::Request> requests, const inference::SamplingConfig& sampling,
                       inference::DrawKey key) {
    for (int attempt = 1;; ++attempt) {
      auto one = generator_.attempt(requests, sampling, key);
      if (!can_lose() || !is_lost(one, attempt)) return GatedGenerator<G>::accepted(std::move(one));
      if (attempt == most)
        core::raise("sync", 4,
                    {.what = "the server loses its weights again and again",
                     .found = std::to_string(most) + " times within one call",
                     .remedy = "look at its log: it may be started anew in a loop, or serve another trainer, too"});
      WeightGate& gate = generator_.gate();
      gate.lose();
      if (gate.on_trainer())
        recovery_->hand_over(gate.version());
      else
        gate.wait_for_recovery();
    }
  }
  [[nodiscard]] inference::WeightSource source() const { return generator_.source(); }
  [[nodiscard]] bool quantizes() const { return generator_.quantizes(); }

 private:
  static constexpr int most = 4;  // attempts of a call

  [[nodiscard]] bool can_lose() const {
    return source() == inference::WeightSource::remote && recovery_->hand_over != nullptr;
  }

  // Whether what it brought may be of other weights than those that were published.
  [[nodiscard]] bool is_lost(const typename GatedGenerator<G>::Attempt& attempt, int number) {
    if (!attempt.failure) return attempt.doubted || forgot(attempt);
    try {
      std::rethrow_exception(attempt.failure);
    } catch (const core::Error& e) {
      return e.number() == 1 && detail::may_be_restart(e, attempt.doubted) && number < most;
    } catch (...) {
      return false;
    }
  }

  // Whether a server that used to say the version of its completions does not say the published one.
  [[nodiscard]] bool forgot(const typename GatedGenerator<G>::Attempt& attempt) {
    bool other = false;
    for (const auto& group : attempt.completions)
      for (const data::Completion& completion : group) {
        tells_ = tells_ || completion.weights_version >= 0;
        other = other || completion.weights_version != attempt.version;
      }
    return tells_ && other;
  }

  bool tells_ = false;
  GatedGenerator<G> generator_;
  std::shared_ptr<const Recovery> recovery_;
};

template <SyncPolicy Y>
class RecoveringSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return Y::reaches(source); }
  static constexpr Hooks hooks{.serves = true};

  RecoveringSync(Y policy, std::shared_ptr<WeightGate> gate) : policy_(std::move(policy)), gate_(std::move(gate)) {}

  // Within a change of the gate.
  Published publish(std::int64_t version) {
    if constexpr (hooks_of<Y>().forget) {
      if (gate_->lost()) policy_.forget();
      try {
        return policy_.publish(version);
      } catch (const core::Error& e) {
        if (!detail::may_be_restart(e, gate_->doubted())) throw;
        gate_->lose();
      }
      policy_.forget();
    }
    return policy_.publish(version);
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const { return policy_.version_source(); }
  [[nodiscard]] bool serves(inference::WeightSource source) const { return sync::serves(policy_, source); }

 private:
  Y policy_;
  std::shared_ptr<WeightGate> gate_;
};

// On the trainer's thread, while it waits for the generator: hands the weights over as `version`, if a server waits for
// them.
inline void restore_if_lost(const WeightGate& gate, const Recovery& recovery, std::int64_t version) {
  if (!recovery.hand_over || !gate.lost()) return;
  if (recovery.sharded)
    core::raise("sync", 11,
                {.what = "the server was started anew and has lost its weights, which are sharded over several ranks",
                 .found = "an asynchronous generation, for which all ranks wait",
                 .remedy = "start the run again from its last checkpoint (--max-restarts does), or set "
                           "trl.async_prefetch: false"});
  recovery.hand_over(version);
}

}  // namespace rlalgo::sync
