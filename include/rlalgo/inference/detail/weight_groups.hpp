// The weights in use of a step, in groups of those that decode in one pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <rlalgo/inference/detail/roster.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/forward.hpp>

namespace rlalgo::inference::detail {

class WeightGroups {
 public:
  using Group = std::vector<Forward::WeightsHandle>;

  // Of all that have slots, the oldest first.
  void assign(Roster& roster, Forward& forward) {
    clear();
    const Forward::WeightsHandle* last = nullptr;
    for (std::size_t k = 0; k < roster.size(); ++k) {
      const Forward::WeightsHandle& weights = roster[k].request->spec.weights;
      if (last != nullptr && *last == weights) continue;
      last = &weights;
      if (!contains(weights)) add(weights, forward.joined());
    }
  }
  // Nobody is kept by them.
  void clear() {
    for (Group& group : groups_) group.clear();
    count_ = 0;
  }
  [[nodiscard]] std::span<const Group> all() const { return std::span(groups_).first(count_); }

  [[nodiscard]] static bool has(std::span<const Forward::WeightsHandle> group, const Forward::WeightsHandle& weights) {
    return std::find(group.begin(), group.end(), weights) != group.end();
  }

 private:
  [[nodiscard]] bool contains(const Forward::WeightsHandle& weights) const {
    return std::ranges::any_of(all(), [&](const Group& group) { return has(group, weights); });
  }
  void add(const Forward::WeightsHandle& weights, JoinedForward* joined) {
    for (Group& group : std::span(groups_).first(count_))
      if (joined != nullptr && joined->joins(*weights, group)) return group.push_back(weights);
    if (count_ == groups_.size()) groups_.emplace_back();
    groups_[count_++].push_back(weights);
  }

  std::vector<Group> groups_;  // the first count_ are in use
  std::size_t count_ = 0;
};

// Whether completions of several of these weights decode.
[[nodiscard]] inline bool several_decode(Roster& roster, std::span<const Forward::WeightsHandle> group) {
  const Forward::WeightsHandle* first = nullptr;
  for (std::size_t k = 0; k < roster.size() && group.size() > 1; ++k) {
    const Slot& slot = roster[k];
    const Forward::WeightsHandle& weights = slot.request->spec.weights;
    if (slot.waits || slot.uncomputed() != 1 || (first != nullptr && *first == weights)) continue;
    if (!WeightGroups::has(group, weights)) continue;
    if (first != nullptr) return true;
    first = &weights;
  }
  return false;
}

}  // namespace rlalgo::inference::detail
