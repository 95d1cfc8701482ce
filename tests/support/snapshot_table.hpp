// A generator of known tokens that may be asked on another thread: completions come from a table, with the version that
// was published last; it can be slow, fail, or hang until it is asked to stop.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <vector>

#include <rlalgo/inference/generator.hpp>
#include <rlalgo/os/interruption.hpp>

namespace rlalgo::support {

// Completion j of a prompt whose first id is p, in generation n: tokens p, j, n mod 7, version mod 5.
class SnapshotTable {
 public:
  static constexpr inference::WeightSource weights = inference::WeightSource::snapshot;

  std::atomic<std::int64_t> version{0};
  std::atomic<int> milliseconds{0};        // of a call
  std::atomic<std::int64_t> fails_at{-1};  // generation number
  std::atomic<std::int64_t> hangs_at{-1};  // until `stop`
  std::atomic<std::uint64_t> from{0};      // both only in calls whose first completion has this index or a later one
  std::atomic<std::int64_t> begun{0};      // calls
  std::stop_token stop;
  bool further = false;  // each completion has a further row

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey key) {
    ++begun;
    const std::int64_t now = version;
    const bool far = requests[0].first_index >= from;
    if (far && static_cast<std::int64_t>(key.step) == fails_at) throw std::domain_error("the table has burnt");
    while (far && static_cast<std::int64_t>(key.step) == hangs_at) {
      if (stop.stop_requested()) os::raise_interrupted("os", 8, {.what = "given up"});
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    std::vector<std::vector<data::Completion>> out;
    for (const inference::Request& request : requests) {
      out.emplace_back();
      for (std::int64_t j = 0; j < request.count; ++j) {
        data::Completion one;
        one.ids = {request.prompt.at(0), static_cast<data::TokenId>(j), static_cast<data::TokenId>(key.step % 7),
                   static_cast<data::TokenId>(now % 5)};
        one.log_probs = {-0.5F, -0.25F, -0.125F, -1.0F};
        one.weights_version = now;
        if (further) {
          one.further.emplace_back();
          one.further[0].prompt_ids = {9, one.ids[1]};
          one.further[0].ids = {one.ids[0], one.ids[1] + 50};
          one.further[0].log_probs = {-0.75F, -1.5F};
        }
        out.back().push_back(std::move(one));
      }
    }
    return out;
  }
};

}  // namespace rlalgo::support
