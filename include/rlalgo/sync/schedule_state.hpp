// Which asynchronous calls a record has, and what may happen next when it is repeated: a state machine without threads, which
// call_schedule.hpp puts under a mutex.
//
//   a call begins when its version is in force; a version is published when no call of an earlier one is left
//
// Calls that the record does not have begin at once.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace rlalgo::sync {

class ScheduleState {
 public:
  using Call = std::pair<std::uint64_t, std::int64_t>;  // generation, number within it

  // Of the record. A generation that was made again is the later one alone.
  void expect(const Call& call, std::int64_t version) {
    if (call.second == 0) std::erase_if(left_, [&](const auto& earlier) { return earlier.first.first == call.first; });
    left_[call] = version;
  }
  [[nodiscard]] bool empty() const noexcept { return left_.empty(); }

  // The next call of a generation, counted from 0.
  Call next(std::uint64_t generation) {
    number_ = generation_ == generation ? number_ + 1 : 0;
    generation_ = generation;
    return current();
  }
  [[nodiscard]] Call current() const noexcept { return {generation_, number_}; }
  [[nodiscard]] bool may_begin() const {
    const auto found = left_.find(current());
    return found == left_.end() || version_ >= found->second;
  }
  void end() { left_.erase(current()); }
  // Nobody waits for the calls that are left.
  void give_up() { left_.clear(); }

  // Before `version` is published; of the first one of this process calls of earlier versions are past.
  void begin_publish(std::int64_t version) {
    if (!begun_) std::erase_if(left_, [&](const auto& call) { return call.second < version; });
    begun_ = true;
  }
  // A call that has to end before; none: it may be published.
  [[nodiscard]] std::optional<std::pair<Call, std::int64_t>> earlier_than(std::int64_t version) const {
    for (const auto& call : left_)
      if (call.second < version) return call;
    return std::nullopt;
  }
  void published(std::int64_t version) noexcept { version_ = version; }

 private:
  std::map<Call, std::int64_t> left_;  // that have not ended
  std::uint64_t generation_ = ~std::uint64_t{0};
  std::int64_t number_ = 0;
  std::int64_t version_ = -1;  // in force
  bool begun_ = false;         // a first version was published
};

}  // namespace rlalgo::sync
