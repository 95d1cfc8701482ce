// How much a scheduler does at a time, and with how much memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rlalgo/data/rollout.hpp>

namespace rlalgo::inference {

struct SchedulerConfig {
  std::int64_t max_slots = 32;        // completions decoded in one pass
  std::int64_t prefill_rows = 256;    // prompt tokens added to one pass
  std::int64_t prefill_ahead = 2048;  // prompt tokens at most for which those that decode are held up; 0 = never
  std::size_t cache_bytes = 0;        // of keys and values; 0 = what running requests need at their peak
  // Of states that are saved behind pages, where the model carries any (kv_cache.hpp): without them no prefix is found again.
  std::size_t saved_bytes = std::size_t{512} << 20U;
  bool prefix_cache = true;              // keep pages that nobody uses any more, as long as there is room
  std::vector<data::TokenId> eos_ids{};  // the model's end ids, beside those of a request
};

}  // namespace rlalgo::inference
