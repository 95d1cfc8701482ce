// Draws of requests without a seed that repeat themselves, whatever order the requests arrive in.
//
//   key = (mix of seed, name of the weights, prompt, k; 1)      k = how often that prompt was asked before, under these weights
//
// So the completions that a prompt gets under a version are a function of the seed; which of several equal requests gets
// which is the order of their arrival. A trainer names its versions (weight_store.hpp), so that a run that is resumed, with
// a server that is new, draws what it would have drawn.
//
// Of one version at a time is known what was asked. From any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::serve {

class RepeatableDraws {
 public:
  inference::DrawKey next(std::uint64_t seed, const std::string& weights, std::span<const data::TokenId> prompt) {
    std::uint64_t hash = mixed(seed, weights.size());
    for (const char c : weights) hash = mixed(hash, static_cast<unsigned char>(c));
    for (const data::TokenId id : prompt) hash = mixed(hash, static_cast<std::uint64_t>(id) + 1);
    const std::lock_guard lock(mutex_);
    if (weights != weights_) {
      weights_ = weights;
      asked_.clear();
    }
    return {mixed(hash, asked_[hash]++), 1};
  }

 private:
  // The finalizer of SplitMix64 (Steele, Lea and Flood, 2014) over the running value and the next word.
  [[nodiscard]] static std::uint64_t mixed(std::uint64_t state, std::uint64_t word) noexcept {
    std::uint64_t z = (state ^ word) + 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }

  std::mutex mutex_;
  std::string weights_;                                     // of what follows
  std::unordered_map<std::uint64_t, std::uint64_t> asked_;  // by the mix of a prompt: how often
};

}  // namespace rlalgo::serve
