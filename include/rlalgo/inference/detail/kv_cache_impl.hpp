// Definitions of kv_cache.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/kv_cache.hpp>

namespace rlalgo::inference {

namespace detail {

struct ElementSize {
  std::int64_t bytes, padding;  // of a number; d is padded to a multiple of
};
inline ElementSize size_of(CacheElement element) {
  if (element == CacheElement::float8) return {1, cpu::pair_lane};
  return element == CacheElement::bfloat16 ? ElementSize{2, cpu::pair_lane} : ElementSize{4, cpu::lane};
}

}  // namespace detail

RLALGO_INLINE KvCache::KvCache(std::int64_t layers, std::int64_t kv_heads, std::int64_t head_dim, CacheElement element,
                               PageMemory& memory, std::int64_t note_bytes, std::size_t carried_bytes,
                               PageMemory& state_memory)
    : memory_(memory),
      element_(element),
      kv_heads_(kv_heads),
      head_dim_((head_dim + detail::size_of(element).padding - 1) / detail::size_of(element).padding *
                detail::size_of(element).padding),
      head_size_(head_dim_ * cpu::page_positions * detail::size_of(element).bytes),
      note_bytes_(note_bytes),
      notes_(layers * kv_heads * 2 * head_size_),
      page_size_(notes_ + (note_bytes * cpu::page_positions + 63) / 64 * 64),
      carried_bytes_(carried_bytes),
      state_memory_(state_memory) {}

RLALGO_INLINE KvCache::~KvCache() {
  for (std::byte* page : pages_)
    if (page != nullptr) memory_.free(page, page_bytes());
  for (std::byte* state : states_) state_memory_.free(state, carried_bytes_);
}

RLALGO_INLINE std::byte* KvCache::take_state() {
  if (carried_bytes_ == 0) return nullptr;
  if (free_states_.empty()) {
    states_.reserve(states_.size() + 1 > states_.capacity() ? 2 * states_.size() + 16 : 0);
    free_states_.reserve(states_.capacity());  // nothing is allocated where one is given back
    return states_.emplace_back(state_memory_.allocate(carried_bytes_));
  }
  std::byte* const state = free_states_.back();
  free_states_.pop_back();
  return state;
}

RLALGO_INLINE std::byte* KvCache::save(PageId page) {
  if (most_saved_ == 0) return nullptr;
  if (saved_.size() < pages_.size()) saved_.resize(pages_.size());
  if (saved_[page].state == nullptr) {
    if (saved_count_ >= most_saved_) {
      PageId oldest = 0;
      for (PageId other = 0; other < saved_.size(); ++other)
        if (saved_[other].state != nullptr &&
            (saved_[oldest].state == nullptr || saved_[other].used < saved_[oldest].used))
          oldest = other;
      if (saved_[oldest].used > pass_began_) return nullptr;
      drop_saved(oldest);
    }
    saved_[page].state = take_state();
    ++saved_count_;
  }
  saved_[page].used = ++uses_;
  return saved_[page].state;
}

RLALGO_INLINE void KvCache::adopt(Sequence& sequence, PageId page) {
  sequence.state = take_state();
  state_memory_.copy(saved_[page].state, sequence.state, carried_bytes_);
  saved_[page].used = ++uses_;
}

RLALGO_INLINE void KvCache::move_saved(PageId from, PageId to) {
  if (!has_saved(from) || has_saved(to)) return;
  if (saved_.size() < pages_.size()) saved_.resize(pages_.size());
  std::swap(saved_[from], saved_[to]);
}

RLALGO_INLINE void KvCache::drop_saved(PageId page) {
  if (!has_saved(page)) return;
  free_states_.push_back(std::exchange(saved_[page].state, nullptr));
  --saved_count_;
}

RLALGO_INLINE void KvCache::trim() noexcept {
  for (std::byte* state : free_states_) {
    std::erase(states_, state);
    state_memory_.free(state, carried_bytes_);
  }
  free_states_.clear();
  for (const PageId id : free_)
    if (pages_[id] != nullptr) memory_.free(std::exchange(pages_[id], nullptr), page_bytes());
}

RLALGO_INLINE std::int64_t KvCache::key_offset(std::int64_t layer, std::int64_t head) const noexcept {
  return (layer * kv_heads_ + head) * 2 * head_size_;
}

RLALGO_INLINE std::int64_t KvCache::value_offset(std::int64_t layer, std::int64_t head) const noexcept {
  return key_offset(layer, head) + head_size_;
}

RLALGO_INLINE std::int64_t KvCache::note_offset(std::int64_t position) const noexcept {
  return notes_ + position % cpu::page_positions * note_bytes_;
}

RLALGO_INLINE std::size_t KvCache::pages_for(std::int64_t positions) noexcept {
  return static_cast<std::size_t>((positions + cpu::page_positions - 1) / cpu::page_positions);
}

RLALGO_INLINE bool KvCache::available(std::size_t count) const noexcept {
  return limit_ == 0 || free_.size() + kept() + (limit_ - std::min(limit_, pages_.size())) >= count;
}

RLALGO_INLINE void KvCache::reserve(Sequence& sequence, std::int64_t positions) {
  sequence.pages.reserve(pages_for(positions));
  sequence.ids.reserve(pages_for(positions));
}

RLALGO_INLINE bool KvCache::extend(Sequence& sequence, std::int64_t count) {
  const std::size_t wanted = pages_for(sequence.length + count);
  if (wanted > sequence.pages.size() && !available(wanted - sequence.pages.size())) return false;
  claim_state(sequence);
  while (sequence.pages.size() < wanted) append(sequence, take());
  sequence.length += count;  // it is as it was where there was no memory
  return true;
}

RLALGO_INLINE bool KvCache::fork(const Sequence& parent, Sequence& child) {
  const bool partial = parent.length % cpu::page_positions != 0;
  if (partial && !available(1)) return false;
  child.length = parent.length;
  child.indexed = parent.indexed;
  if (parent.state != nullptr) {
    child.state = take_state();
    state_memory_.copy(parent.state, child.state, carried_bytes_);
  }
  child.pages.assign(parent.pages.begin(), parent.pages.end());
  child.ids.assign(parent.ids.begin(), parent.ids.end());
  for (const PageId id : child.ids) ++users_[id];
  if (!partial) return true;
  const PageId copy = take();
  memory_.copy(child.pages.back(), pages_[copy], page_bytes());
  --users_[child.ids.back()];
  child.ids.back() = copy;
  child.pages.back() = pages_[copy];
  return true;
}

RLALGO_INLINE void KvCache::transfer(Sequence& parent, Sequence& child) {
  child.length = std::exchange(parent.length, 0);
  child.indexed = std::exchange(parent.indexed, 0);
  child.state = std::exchange(parent.state, nullptr);
  child.pages.assign(parent.pages.begin(), parent.pages.end());
  child.ids.assign(parent.ids.begin(), parent.ids.end());
  parent.pages.clear();
  parent.ids.clear();
}

RLALGO_INLINE void KvCache::release(Sequence& sequence) {
  for (const PageId id : sequence.ids) leave(id);
  sequence.pages.clear();
  sequence.ids.clear();
  sequence.length = sequence.indexed = 0;
  if (sequence.state != nullptr) free_states_.push_back(std::exchange(sequence.state, nullptr));
}

RLALGO_INLINE void KvCache::append(Sequence& sequence, PageId page) {
  sequence.pages.push_back(pages_[page]);
  sequence.ids.push_back(page);
}

RLALGO_INLINE void KvCache::leave(PageId page) {
  if (--users_[page] == 0 && (keeper_ == nullptr || !keeper_->keep(page))) free(page);
}

RLALGO_INLINE KvCache::PageId KvCache::take() {
  if (free_.empty()) {
    const bool full = limit_ == 0 || pages_.size() >= limit_;
    if (!full || keeper_ == nullptr || !keeper_->surrender()) grow();
  }
  const PageId page = free_.back();
  if (pages_[page] == nullptr) pages_[page] = memory_.allocate(page_bytes());
  free_.pop_back();
  users_[page] = 1;
  return page;
}

RLALGO_INLINE void KvCache::grow() {
  pages_.reserve(pages_.size() + 1 > pages_.capacity() ? 2 * pages_.size() + 16 : 0);
  users_.reserve(pages_.capacity());
  free_.reserve(pages_.capacity());
  pages_.push_back(memory_.allocate(page_bytes()));
  users_.push_back(0);
  free_.push_back(static_cast<PageId>(pages_.size() - 1));
}

}  // namespace rlalgo::inference
