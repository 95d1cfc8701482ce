// Keys and values of the running sequences, in pages of 32 positions that sequences with a common prefix share.
//
// A page holds, for every layer and kv head, keys [d, 32] (positions contiguous: one page of scores is d broadcasts)
// and values [32, d], in f32, d padded to a multiple of 8. A sequence is a table of pages. fork() shares every full
// page and copies the last, partly filled one, so that a prompt is stored once however many completions it has, and
// stays in the CPU's cache while they are decoded one after the other. A page is freed with its last user, or kept by
// the Keeper (the prefix cache) until somebody needs it, and is used again: a steady load allocates nothing.
//
// With a limit, extend() and fork() return false, and change nothing, when the pages that are left do not suffice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include <rlalgo/inference/detail/kernels.hpp>

namespace rlalgo::inference {

// Where pages lie: the memory of the device that computes with them.
class PageMemory {
 public:
  virtual ~PageMemory() = default;
  virtual float* allocate(std::size_t bytes) = 0;
  virtual void free(float* page) noexcept = 0;
  virtual void copy(const float* from, float* to, std::size_t bytes) = 0;

  // This machine's, in lines of the cache.
  static PageMemory& host() {
    class Host final : public PageMemory {
     public:
      float* allocate(std::size_t bytes) override { return static_cast<float*>(::operator new(bytes, alignment)); }
      void free(float* page) noexcept override { ::operator delete(page, alignment); }
      void copy(const float* from, float* to, std::size_t bytes) override { std::memcpy(to, from, bytes); }

     private:
      const std::align_val_t alignment{64};
    };
    static Host host;
    return host;
  }
};

class KvCache {
 public:
  using PageId = std::uint32_t;

  struct Sequence {
    std::vector<float*> pages;
    std::vector<PageId> ids;   // of `pages`
    std::int64_t length = 0;   // positions filled
    std::int64_t indexed = 0;  // its first pages that the prefix cache knows
  };

  // Who may keep pages that no sequence uses.
  class Keeper {
   public:
    virtual ~Keeper() = default;
    virtual bool keep(PageId page) = 0;  // its last user has left; false = free it
    virtual bool surrender() = 0;        // frees one kept page; false = none is kept
    [[nodiscard]] virtual std::size_t kept() const = 0;
  };

  KvCache(std::int64_t layers, std::int64_t kv_heads, std::int64_t head_dim, PageMemory& memory = PageMemory::host())
      : memory_(memory),
        kv_heads_(kv_heads),
        head_dim_((head_dim + detail::lane - 1) / detail::lane * detail::lane),
        head_size_(head_dim_ * detail::page_positions),
        page_size_(layers * kv_heads * 2 * head_size_) {}
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  ~KvCache() {
    for (float* page : pages_) memory_.free(page);
  }

  // At most so many pages; 0 = as many as the sequences in use need at their peak.
  void limit(std::size_t pages) noexcept { limit_ = pages; }
  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }
  // `keeper` outlives all use of the cache; null = pages are freed with their last user.
  void set_keeper(Keeper* keeper) noexcept { keeper_ = keeper; }

  [[nodiscard]] std::int64_t padded_head_dim() const noexcept { return head_dim_; }
  // Offsets inside a page.
  [[nodiscard]] std::int64_t key_offset(std::int64_t layer, std::int64_t head) const noexcept {
    return (layer * kv_heads_ + head) * 2 * head_size_;
  }
  [[nodiscard]] std::int64_t value_offset(std::int64_t layer, std::int64_t head) const noexcept {
    return key_offset(layer, head) + head_size_;
  }
  [[nodiscard]] std::size_t pages_in_use() const noexcept { return pages_.size() - free_.size() - kept(); }
  [[nodiscard]] std::size_t pages_allocated() const noexcept { return pages_.size(); }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return static_cast<std::size_t>(page_size_) * sizeof(float); }
  [[nodiscard]] static std::size_t pages_for(std::int64_t positions) noexcept {
    return static_cast<std::size_t>((positions + detail::page_positions - 1) / detail::page_positions);
  }
  // Whether `count` pages could be had now.
  [[nodiscard]] bool available(std::size_t count) const noexcept {
    return limit_ == 0 || free_.size() + kept() + (limit_ - std::min(limit_, pages_.size())) >= count;
  }

  static void reserve(Sequence& sequence, std::int64_t positions) {
    sequence.pages.reserve(pages_for(positions));
    sequence.ids.reserve(pages_for(positions));
  }

  // Makes room for positions [length, length + count); they are filled by the caller. The last page must not be shared.
  bool extend(Sequence& sequence, std::int64_t count) {
    const std::size_t wanted = pages_for(sequence.length + count);
    if (wanted > sequence.pages.size() && !available(wanted - sequence.pages.size())) return false;
    sequence.length += count;
    while (sequence.pages.size() < wanted) append(sequence, take());
    return true;
  }

  // Makes `child` (empty) a continuation of `parent`.
  bool fork(const Sequence& parent, Sequence& child) {
    const bool partial = parent.length % detail::page_positions != 0;
    if (partial && !available(1)) return false;
    child.length = parent.length;
    child.indexed = parent.indexed;
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

  // Makes `child` (empty) what `parent` was, and `parent` empty.
  void transfer(Sequence& parent, Sequence& child) {
    child.length = std::exchange(parent.length, 0);
    child.indexed = std::exchange(parent.indexed, 0);
    child.pages.assign(parent.pages.begin(), parent.pages.end());
    child.ids.assign(parent.ids.begin(), parent.ids.end());
    parent.pages.clear();
    parent.ids.clear();
  }

  void release(Sequence& sequence) {
    for (const PageId id : sequence.ids) leave(id);
    sequence.pages.clear();
    sequence.ids.clear();
    sequence.length = sequence.indexed = 0;
  }

  // For the keeper. append(): a page that is filled becomes the next one of a sequence whose pages are full; its use is
  // counted by join().
  void append(Sequence& sequence, PageId page) {
    sequence.pages.push_back(pages_[page]);
    sequence.ids.push_back(page);
  }
  void join(PageId page) noexcept { ++users_[page]; }
  void leave(PageId page) {
    if (--users_[page] == 0 && (keeper_ == nullptr || !keeper_->keep(page))) free_.push_back(page);
  }
  void free(PageId page) { free_.push_back(page); }
  [[nodiscard]] float* data(PageId page) const noexcept { return pages_[page]; }
  [[nodiscard]] std::uint32_t users(PageId page) const noexcept { return users_[page]; }

 private:
  [[nodiscard]] std::size_t kept() const noexcept { return keeper_ == nullptr ? 0 : keeper_->kept(); }

  PageId take() {
    if (free_.empty()) {
      const bool full = limit_ == 0 || pages_.size() >= limit_;
      if (!full || keeper_ == nullptr || !keeper_->surrender()) grow();
    }
    const PageId page = free_.back();
    free_.pop_back();
    users_[page] = 1;
    return page;
  }

  void grow() {
    pages_.reserve(pages_.size() + 1 > pages_.capacity() ? 2 * pages_.size() + 16 : 0);
    users_.reserve(pages_.capacity());
    free_.reserve(pages_.capacity());
    pages_.push_back(memory_.allocate(page_bytes()));
    users_.push_back(0);
    free_.push_back(static_cast<PageId>(pages_.size() - 1));
  }

  PageMemory& memory_;
  std::int64_t kv_heads_, head_dim_, head_size_, page_size_;
  std::size_t limit_ = 0;
  Keeper* keeper_ = nullptr;
  std::vector<float*> pages_;         // by id
  std::vector<std::uint32_t> users_;  // by id
  std::vector<PageId> free_;
};

}  // namespace rlalgo::inference
