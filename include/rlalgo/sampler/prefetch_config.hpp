// Settings of sampler/prefetch.hpp, which says what they mean together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include <rlalgo/distributed/world.hpp>

namespace rlalgo::sampler {

struct PrefetchConfig {
  std::int64_t depth = 1;           // 0: generation and training take turns
  std::int64_t sync_interval = 1;   // optimizer steps between two publishes, at least
  std::int64_t max_staleness = -1;  // updates; below 0: no limit
  std::int64_t stream_groups = 0;  // finished together, where a generation is trained on while it is made; 0: it is not
  std::int64_t generations = 0;    // of the whole run; 0 = not known
  // The longest time between two signs of life of the producer: it begins or ends making a generation, or `progress`
  // changes. 0 = for ever.
  double stall_seconds = 0.0;
  std::stop_source stop = {};                         // asked to stop when the sampler ends
  std::function<void(const std::string&)> tell = {};  // hears of a failure when it happens, on the producer's thread
  // Held while a generation is made: for samplers that share generator or rewards.
  std::shared_ptr<std::mutex> mutex = std::make_shared<std::mutex>();
  // Held while one is scored; a generation that is drawn while the one before is scored holds `mutex` alone.
  std::shared_ptr<std::mutex> scoring_mutex = std::make_shared<std::mutex>();
  std::function<std::uint64_t()> progress = {};  // a number that grows while the generator works; asked by the trainer
  // What the trainer does while it waits, every 100 ms; with the step that it waits for.
  std::function<void(std::int64_t step)> meanwhile = {};
  // Called by the producer before it begins a generation, and may wait until that may be; returns false when `stop` came
  // first. Empty: it begins at once.
  std::function<bool(std::int64_t number, std::stop_token stop)> begin = {};
  // Several ranks: where their producers meet, which the source has, too; null: one rank.
  std::shared_ptr<distributed::World> world = nullptr;
};

}  // namespace rlalgo::sampler
