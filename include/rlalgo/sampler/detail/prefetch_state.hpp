// What the two threads of sampler/prefetch.hpp share.
#pragma once

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

#include <nlohmann/json.hpp>

#include <rlalgo/core/clock.hpp>
#include <rlalgo/sampler/batch.hpp>

namespace rlalgo::sampler::detail {

// A generation that is ready, or as far as it is made.
struct PrefetchItem {
  Made made;
  std::size_t rows = 0;  // that are finished
  bool whole = false;    // and all that is told of it
};
struct PrefetchState {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  std::deque<std::shared_ptr<PrefetchItem>> ready;  // by number, without a gap
  std::int64_t asked = -1;                          // the number that the trainer asked for last
  bool stale = false;                               // the first of them is to be made anew, before all others
  std::function<nlohmann::ordered_json()>
      captured;                // what the source knew after ready.back(), or after the last that was popped
  std::exception_ptr failure;  // the producer has ended with it
  bool given_up = false;       // since a stop was asked for: what is ready is trained on
  double idle_seconds = 0.0;   // the producer waited for room since the last pop
  core::SteadyTime alive = std::chrono::steady_clock::now();  // the latest sign of life
  std::uint64_t progress = 0;                                 // Config::progress at that time
};
// What is told of a pop.
struct Popping {
  std::optional<double> ready;  // generations, when it was asked for
  double dropped = 0.0;         // rows
  double waited = 0.0;          // seconds
};

}  // namespace rlalgo::sampler::detail
