// The slots of a scheduler: who has one, oldest first. A request is older than those that came after it, a completion
// than the later ones of its request.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/kv_cache.hpp>

namespace rlalgo::inference::detail {

class Roster {
 public:
  explicit Roster(std::int64_t slots) : slots_(static_cast<std::size_t>(slots)) {
    order_.reserve(slots_.size());
    for (std::size_t s = slots_.size(); s-- > 0;) free_.push_back(s);
  }

  [[nodiscard]] bool full() const noexcept { return free_.empty(); }
  [[nodiscard]] bool empty() const noexcept { return order_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return order_.size(); }
  [[nodiscard]] Slot& operator[](std::size_t k) { return slots_[order_[k]]; }  // the k-th oldest
  [[nodiscard]] std::size_t index(std::size_t k) const { return order_[k]; }   // that stays the same while it is in use
  [[nodiscard]] Slot& at_index(std::size_t s) { return slots_[s]; }
  [[nodiscard]] std::size_t rank(std::size_t s) const {
    return static_cast<std::size_t>(std::find(order_.begin(), order_.end(), s) - order_.begin());
  }

  // Sequences of that length follow.
  void reserve(std::int64_t length) {
    for (Slot& slot : slots_) KvCache::reserve(slot.sequence, length);
  }

  // Pages that those with slots have yet to claim for tokens that are known.
  [[nodiscard]] std::size_t promised_pages() const {
    std::size_t pages = 0;
    const Scheduled* last = nullptr;
    for (const std::size_t s : order_) {
      const Slot& slot = slots_[s];
      const Scheduled& request = *slot.request;
      if (!slot.waits)
        pages += KvCache::pages_for(slot.tokens().size()) - slot.sequence.pages.size();
      else if (!request.complete && std::exchange(last, &request) != &request)
        pages += KvCache::pages_for(request.prompt_size() + 1) - request.prompt.pages.size();
    }
    return pages;
  }

  // A slot for a completion that waits for its prompt; its rank.
  std::size_t add(Scheduled& request, std::int64_t completion) {
    const std::size_t s = free_.back();
    free_.pop_back();
    slots_[s].request = &request;
    slots_[s].completion = completion;
    slots_[s].waits = true;
    slots_[s].saved.reset();
    ++request.running;
    ++request.waiting;
    const auto older = [&](std::size_t a, std::size_t b) {
      const Slot &x = slots_[a], &y = slots_[b];
      return x.request->id != y.request->id ? x.request->id < y.request->id : x.completion < y.completion;
    };
    const auto at = order_.insert(std::upper_bound(order_.begin(), order_.end(), s, older), s);
    return static_cast<std::size_t>(at - order_.begin());
  }

  // The k-th oldest has its pages from now on, or has left.
  void settle(std::size_t k) {
    Slot& slot = (*this)[k];
    slot.waits = false;
    --slot.request->waiting;
  }
  void remove(std::size_t k) {
    Slot& slot = (*this)[k];
    --slot.request->running;
    if (slot.waits) --slot.request->waiting;
    slot.request = nullptr;
    free_.push_back(order_[k]);
    order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(k));
  }

 private:
  std::vector<Slot> slots_;
  std::vector<std::size_t> free_, order_;
};

}  // namespace rlalgo::inference::detail
