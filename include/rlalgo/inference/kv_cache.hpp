// Keys and values of the running sequences, in pages of 32 positions that sequences with a common prefix share.
//
// A page holds, for every layer and kv head, keys and values of 32 positions. In float32: keys [d, 32] (positions contiguous:
// one page of scores is d broadcasts) and values [32, d], d padded to a multiple of 8. In bfloat16, whose products add two
// terms at a time: keys [d / 2, 32, 2] hold pairs of dimensions and values [16, d, 2] pairs of positions next to each other; d is
// padded to a multiple of 32. A sequence is a table of pages. fork() shares every full
// page and copies the last, partly filled one, so that a prompt is stored once however many completions it has, and
// stays in the CPU's cache while they are decoded one after the other. A page is freed with its last user, or kept by
// the Keeper (the prefix cache) until somebody needs it, and is used again: a steady load allocates nothing.
//
// A model whose layers carry a state from token to token has `carried_bytes` of it for each sequence, beside the pages: fork() copies it,
// and what it is behind a full page can be saved with the page, so that the prefix cache may begin there (save(), adopt()). States
// saved take `saved_bytes` at most: of pages that are known, those of the least recently used go. A page takes its state along.
//
// With a limit, extend() and fork() return false, and change nothing, when the pages that are left do not suffice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <rlalgo/inference/page_memory.hpp>
#include <rlalgo/model/decoder_config.hpp>

namespace rlalgo::inference {

enum class CacheElement { float32, bfloat16, float8 };  // float8: e4m3, on a device alone

class KvCache {
 public:
  using PageId = std::uint32_t;

  struct Sequence {
    std::vector<std::byte*> pages;
    std::vector<PageId> ids;     // of `pages`
    std::int64_t length = 0;     // positions filled
    std::int64_t indexed = 0;    // its first pages that the prefix cache knows
    std::byte* state = nullptr;  // behind its last position, where the model carries one and it has a position
  };

  // Who may keep pages that no sequence uses.
  class Keeper {
   public:
    virtual ~Keeper() = default;
    virtual bool keep(PageId page) = 0;  // its last user has left; false = free it
    virtual bool surrender() = 0;        // frees one kept page; false = none is kept
    [[nodiscard]] virtual std::size_t kept() const = 0;
  };

  // `layers`: that keep keys and values.
  KvCache(std::int64_t layers, std::int64_t kv_heads, std::int64_t head_dim,
          CacheElement element = CacheElement::float32, PageMemory& memory = PageMemory::host(),
          std::int64_t note_bytes = 0, std::size_t carried_bytes = 0, PageMemory& state_memory = PageMemory::host());
  // Of a decoder.
  KvCache(const model::DecoderConfig& decoder, CacheElement element, PageMemory& memory = PageMemory::host(),
          PageMemory& state_memory = PageMemory::host(), std::int64_t note_bytes = 0)
      : KvCache(std::max<std::int64_t>(1, decoder.attention_layers()), decoder.kv_heads, decoder.head_dim, element,
                memory, note_bytes, static_cast<std::size_t>(decoder.carried()) * sizeof(float), state_memory) {}
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;
  ~KvCache();

  // At most so many pages; 0 = as many as the sequences in use need at their peak.
  void limit(std::size_t pages) noexcept { limit_ = pages; }
  [[nodiscard]] std::size_t limit() const noexcept { return limit_; }
  // `keeper` outlives all use of the cache; null = pages are freed with their last user.
  void set_keeper(Keeper* keeper) noexcept { keeper_ = keeper; }

  [[nodiscard]] CacheElement element() const noexcept { return element_; }
  [[nodiscard]] std::int64_t padded_head_dim() const noexcept { return head_dim_; }
  // Bytes from the beginning of a page.
  [[nodiscard]] std::int64_t key_offset(std::int64_t layer, std::int64_t head) const noexcept;
  [[nodiscard]] std::int64_t value_offset(std::int64_t layer, std::int64_t head) const noexcept;
  // What a pass notes of every position beside keys and values: so many bytes, from so many on.
  [[nodiscard]] std::int64_t note_bytes() const noexcept { return note_bytes_; }
  [[nodiscard]] std::int64_t note_offset(std::int64_t position) const noexcept;
  [[nodiscard]] std::size_t pages_in_use() const noexcept { return pages_.size() - free_.size() - kept(); }
  [[nodiscard]] std::size_t pages_allocated() const noexcept { return pages_.size(); }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return static_cast<std::size_t>(page_size_); }
  [[nodiscard]] static std::size_t pages_for(std::int64_t positions) noexcept;
  [[nodiscard]] std::size_t carried_bytes() const noexcept { return carried_bytes_; }
  [[nodiscard]] std::size_t states_allocated() const noexcept { return states_.size(); }
  // Whether `count` pages could be had now.
  [[nodiscard]] bool available(std::size_t count) const noexcept;

  static void reserve(Sequence& sequence, std::int64_t positions);

  // Makes room for positions [length, length + count); they are filled by the caller. The last page must not be shared.
  bool extend(Sequence& sequence, std::int64_t count);

  // Makes `child` (empty) a continuation of `parent`.
  bool fork(const Sequence& parent, Sequence& child);

  // Makes `child` (empty) what `parent` was, and `parent` empty.
  void transfer(Sequence& parent, Sequence& child);

  void release(Sequence& sequence);
  // Gives back the memory of pages and states that nobody uses or keeps.
  void trim() noexcept;

  // States behind full pages. At most so many bytes of them.
  void limit_saved(std::size_t bytes) noexcept { most_saved_ = carried_bytes_ == 0 ? 0 : bytes / carried_bytes_; }
  // A pass is about to be put together. What it saves is not there before it has run.
  void begin_pass() noexcept { pass_began_ = uses_; }
  // Where a pass is to copy the state that a sequence has behind this page; null where none is kept.
  [[nodiscard]] std::byte* save(PageId page);
  [[nodiscard]] bool has_saved(PageId page) const noexcept {
    return page < saved_.size() && saved_[page].state != nullptr;
  }
  [[nodiscard]] std::size_t saved() const noexcept { return saved_count_; }
  // The sequence, which has no state, goes on from the state behind a page.
  void adopt(Sequence& sequence, PageId page);
  // What is saved with one page goes to another one with the same tokens that has none.
  void move_saved(PageId from, PageId to);
  void drop_saved(PageId page);
  // The same, unless this pass saves it.
  void outdate_saved(PageId page) {
    if (has_saved(page) && saved_[page].used <= pass_began_) drop_saved(page);
  }
  // A place for the state of a sequence that has none.
  void claim_state(Sequence& sequence) {
    if (sequence.state == nullptr) sequence.state = take_state();
  }

  // For the keeper. append(): a page that is filled becomes the next one of a sequence whose pages are full; its use is
  // counted by join().
  void append(Sequence& sequence, PageId page);
  void join(PageId page) noexcept { ++users_[page]; }
  void leave(PageId page);
  void free(PageId page) {
    drop_saved(page);
    free_.push_back(page);
  }
  [[nodiscard]] std::byte* data(PageId page) const noexcept { return pages_[page]; }
  [[nodiscard]] std::uint32_t users(PageId page) const noexcept { return users_[page]; }

 private:
  [[nodiscard]] std::size_t kept() const noexcept { return keeper_ == nullptr ? 0 : keeper_->kept(); }

  // The state behind a page.
  struct Saved {
    std::byte* state = nullptr;
    std::uint64_t used = 0;  // when, of saved and adopted ones
  };

  PageId take();

  void grow();

  [[nodiscard]] std::byte* take_state();

  PageMemory& memory_;
  CacheElement element_;
  std::int64_t kv_heads_, head_dim_;
  std::int64_t head_size_, note_bytes_, notes_,
      page_size_;  // bytes of a head's keys, of a note, before the notes, of a page
  std::size_t limit_ = 0;
  Keeper* keeper_ = nullptr;
  std::vector<std::byte*> pages_;     // by id
  std::vector<std::uint32_t> users_;  // by id
  std::vector<PageId> free_;
  std::size_t carried_bytes_;
  PageMemory& state_memory_;
  std::vector<std::byte*> states_, free_states_;  // all of them, and those of nobody
  std::vector<Saved> saved_;                      // by page id
  std::size_t saved_count_ = 0, most_saved_ = 0;
  std::uint64_t uses_ = 0, pass_began_ = 0;
};

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/kv_cache_impl.hpp>
#endif
