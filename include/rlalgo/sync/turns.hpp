// A hand-over of weights that fits between two calls of a generator on another thread: generation beside training.
//
//   producer's thread:  TurnsGenerator::generate   one call at a time
//   trainer's thread:   TurnsSync::publish         between two calls, where weights change under a call otherwise
//
// A server's weights change while it generates, and a completion of several turns asks an engine more than once; there a
// publish waits for the call under way and none begins before it is through (`exclusive`), so that a completion has one
// version. An engine on a snapshot keeps the weights that a call began with, and needs no wait.
// Completions whose generator does not know its weights get the version that was in force when the call began.
//
// Both ends hold the same Turns; generator and policy stay their owners'. Every call ends by a deadline of its own or
// when it is asked to stop, so the waits here do.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/inference/generator.hpp>
#include <rlalgo/sync/concept.hpp>

namespace rlalgo::sync {

struct Turns {
  std::mutex turn;                        // of whoever calls the generator, or changes its weights
  std::atomic<std::int64_t> version{-1};  // published last
};

template <inference::Generator G>
class TurnsGenerator {
 public:
  static constexpr inference::WeightSource weights = G::weights;

  TurnsGenerator(G& generator, std::shared_ptr<Turns> turns) : generator_(&generator), turns_(std::move(turns)) {}

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey key) {
    const std::lock_guard lock(turns_->turn);
    const std::int64_t version = turns_->version;
    auto out = generator_->generate(requests, sampling, key);
    for (auto& group : out)
      for (data::Completion& completion : group)
        if (completion.weights_version < 0) completion.weights_version = version;
    return out;
  }
  [[nodiscard]] inference::WeightSource source() const { return inference::source_of(*generator_); }

 private:
  G* generator_;
  std::shared_ptr<Turns> turns_;
};

template <SyncPolicy Y>
class TurnsSync {
 public:
  static constexpr bool reaches(inference::WeightSource source) { return Y::reaches(source); }

  TurnsSync(Y policy, std::shared_ptr<Turns> turns, bool exclusive)
      : policy_(std::move(policy)), turns_(std::move(turns)), exclusive_(exclusive) {}

  Published publish(std::int64_t version) {
    std::unique_lock lock(turns_->turn, std::defer_lock);
    if (exclusive_) lock.lock();
    const Published published = policy_.publish(version);
    turns_->version = version;
    return published;
  }
  [[nodiscard]] std::function<std::int64_t()> version_source() const {
    return [turns = turns_] { return turns->version.load(); };
  }
  [[nodiscard]] bool serves(inference::WeightSource source) const {
    if constexpr (requires { policy_.serves(source); })
      return policy_.serves(source);
    else
      return reaches(source);
  }

 private:
  Y policy_;
  std::shared_ptr<Turns> turns_;
  bool exclusive_;
};

}  // namespace rlalgo::sync
