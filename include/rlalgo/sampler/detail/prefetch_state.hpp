// What the threads of sampler/prefetch.hpp share, and what they ask of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/prefetch_config.hpp>

namespace rlalgo::sampler::detail {

// A generation that is ready, or the part of it that is finished.
struct PrefetchItem {
  Made made;
  std::size_t rows = 0;  // that are finished; all: the rest of `made` is there
  [[nodiscard]] bool whole() const { return rows == made.generation->episodes.size(); }
};
struct PrefetchState {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::deque<std::shared_ptr<PrefetchItem>> ready;  // by number, without a gap
  std::int64_t scoring = 0;                         // generations that are drawn and not ready yet
  std::int64_t asked = -1;                          // the number that the trainer asked for last
  bool stale = false;                               // the first of them is to be made anew, before all others
  std::function<nlohmann::ordered_json()>
      captured;                // what the source knew after ready.back(), or after the last that was popped
  std::exception_ptr failure;  // the producer has ended with it
  bool given_up = false;       // since a stop was asked for: what is ready is trained on
  double idle_seconds = 0.0;   // the producer waited for room since the last pop
  os::SteadyTime alive = std::chrono::steady_clock::now();  // the latest sign of life
  std::uint64_t progress = 0;                               // Config::progress at that time

  [[nodiscard]] auto ready_whole() const {
    return std::count_if(ready.begin(), ready.end(), [](const auto& item) { return item->whole(); });
  }
};
// What is logged of a pop.
struct Popping {
  std::optional<double> ready;  // generations, when it was asked for
  double dropped = 0.0;         // rows
  double waited = 0.0;          // seconds
};

// Of the trainer that waits, with the mutex held. [rlalgo.sampler.9], [rlalgo.os.8]
inline void check_alive(PrefetchState& state, const PrefetchConfig& config) {
  if (config.progress && config.progress() != state.progress) {
    state.progress = config.progress();
    state.alive = std::chrono::steady_clock::now();
  }
  if (os::Interruption::requested() && !config.world)
    os::raise_interrupted("os", 8, {.what = "interrupted while the trainer waited for a generation"});
  const std::chrono::duration<double> silent = std::chrono::steady_clock::now() - state.alive;
  if (config.stall_seconds > 0 && silent.count() > config.stall_seconds)
    core::raise("sampler", 9,
                {.what = "the asynchronous generation gives no sign of life",
                 .found = "none for " + std::to_string(static_cast<std::int64_t>(silent.count())) + " s",
                 .expected = "one within " + std::to_string(static_cast<std::int64_t>(config.stall_seconds)) + " s",
                 .remedy = "look for a reward function or a server that hangs, or raise the limit"});
}

inline void tell_about(Made& made, std::int64_t step, const Popping& popping, PrefetchState& state) {
  core::Metrics& metrics = made.about.metrics;
  for (std::size_t i = 0; i < made.generation->episodes.size(); ++i) {
    if (made.generation->is_replayed(i)) continue;
    const auto behind = static_cast<double>(step - made.generation->episodes[i].first().weights_version);
    metrics.mean("async/staleness/mean", behind, 1.0);
    metrics.maximum("async/staleness/max", behind);
  }
  metrics.mean("async/queue_depth", *popping.ready, 1.0);
  metrics.mean("async/queue_wait_s", popping.waited, 1.0);
  {
    const std::lock_guard lock(state.mutex);
    metrics.mean("async/producer_idle_s", std::exchange(state.idle_seconds, 0.0), 1.0);
  }
  metrics.mean("async/dropped", popping.dropped, 1.0);
  for (const auto& [name, seconds] : made.about.seconds) metrics.mean("async/" + name + "_s", seconds, 1.0);
}

// Of the producer: the number of the generation to make next; none when it is time to end.
inline std::optional<std::int64_t> wait_for_work(PrefetchState& state, const PrefetchConfig& config, std::int64_t next,
                                                 const std::stop_token& stop) {
  const os::Stopwatch watch;
  std::unique_lock lock(state.mutex);
  for (;;) {
    if (state.scoring == 0) state.alive = std::chrono::steady_clock::now();
    if (stop.stop_requested() || state.failure) return std::nullopt;
    if (state.stale) return state.ready.front()->made.number;
    const bool more = config.generations == 0 || next < config.generations;
    const bool room = static_cast<std::int64_t>(state.ready.size()) + state.scoring < config.depth;
    if (more && (room || (config.stream_groups > 0 && next == state.asked))) {
      state.idle_seconds += watch.seconds();
      return next;
    }
    state.changed.wait_for(lock, std::chrono::milliseconds(100));
  }
}

// The producer ends with the exception that is being handled.
inline void fail(PrefetchState& state, const PrefetchConfig& config, const std::stop_token& stop,
                 const std::string& text) {
  const bool given_up = stop.stop_requested() || os::Interruption::requested();
  if (!given_up && config.tell) config.tell("the asynchronous generation has failed: " + text);
  if (!given_up && config.world) config.world->fail(text);
  {
    const std::lock_guard lock(state.mutex);
    if (!state.failure) state.failure = std::current_exception();
    state.given_up = given_up && config.world;
  }
  state.changed.notify_all();
}

}  // namespace rlalgo::sampler::detail
