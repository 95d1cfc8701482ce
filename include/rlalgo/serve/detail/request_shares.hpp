// A request in shares: as many of its completions as there are slots, so that others get slots between two of them.
//
// Draws are the request's own: share k begins at the random index of its first completion. The first share has the
// log-probs of the prompt.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <rlalgo/inference/request.hpp>

namespace rlalgo::serve::detail {

struct Share {
  std::size_t request;
  std::int64_t first, count;  // completions
};

[[nodiscard]] inline std::vector<Share> shares_of(const std::vector<inference::RequestSpec>& requests,
                                                  std::int64_t slots) {
  const std::int64_t most = std::max<std::int64_t>(1, slots);
  std::vector<Share> out;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    out.push_back({i, 0, std::min(most, requests[i].count)});
    for (std::int64_t first = most; first < requests[i].count; first += most)
      out.push_back({i, first, std::min(most, requests[i].count - first)});
  }
  return out;
}

[[nodiscard]] inline inference::RequestSpec spec_of(const inference::RequestSpec& request, const Share& share) {
  inference::RequestSpec out = request;
  out.count = share.count;
  out.first_index += static_cast<std::uint64_t>(share.first);
  if (share.first > 0) out.prompt_log_probs.reset();
  return out;
}

// Puts what a share has come to into the result of its request, which has `count` completions.
inline void put(inference::RequestResult& whole, inference::RequestResult&& part, const Share& share,
                std::int64_t count) {
  if (share.count == count) {
    whole = std::move(part);
    return;
  }
  whole.completions.resize(static_cast<std::size_t>(count));
  std::move(part.completions.begin(), part.completions.end(), whole.completions.begin() + share.first);
  if (share.first > 0) return;
  whole.prompt_log_probs = std::move(part.prompt_log_probs);
  whole.prompt_ranks = std::move(part.prompt_ranks);
  whole.prompt_top = std::move(part.prompt_top);
  whole.cached_tokens = part.cached_tokens;
}

// The result of a share that was never begun.
[[nodiscard]] inline inference::RequestResult nothing_of(const Share& share) {
  inference::RequestResult out;
  out.completions.resize(static_cast<std::size_t>(share.count));
  for (auto& one : out.completions) one.completion.finish = data::Finish::aborted;
  return out;
}

}  // namespace rlalgo::serve::detail
