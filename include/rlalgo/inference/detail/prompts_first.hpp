// Whether prompts are computed before those that decode draw again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <rlalgo/inference/detail/roster.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/detail/weight_groups.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/prefix_cache.hpp>

namespace rlalgo::inference::detail {

// Whether somebody decodes, and more prompt tokens wait under these weights than the `rows` of a pass.
[[nodiscard]] inline bool prompts_first(Roster& roster, PrefixCache& prefixes,
                                        std::span<const Forward::WeightsHandle> group, std::int64_t rows) {
  bool decoding = false;
  std::int64_t waiting = 0;
  const Scheduled* last = nullptr;
  for (std::size_t k = 0; k < roster.size(); ++k) {
    const Slot& slot = roster[k];
    const Scheduled& request = *slot.request;
    if (!WeightGroups::has(group, request.spec.weights)) continue;
    decoding = decoding || (!slot.waits && slot.uncomputed() == 1);
    if (!slot.waits || request.complete || std::exchange(last, &request) == &request) continue;
    std::int64_t there = request.prompt.length;
    if (there == 0 && request.may_reuse())
      there = prefixes.known_length(request.spec.weights->contents, {request.spec.prompt}, request.prompt_size() - 1);
    waiting += request.prompt_size() - there;
    if (decoding && waiting > rows) return true;
  }
  return false;
}

}  // namespace rlalgo::inference::detail
