// Keys and values of the running sequences, in pages of 32 positions that sequences with a common prompt share.
//
// A page holds, for every layer and kv head, keys [d, 32] (positions contiguous: one page of scores is d broadcasts)
// and values [32, d], in f32, d padded to a multiple of 8. A sequence is a table of pages. fork() shares every full
// page and copies the last, partly filled one, so that a prompt is stored once however many completions it has, and
// stays in the CPU's cache while they are decoded one after the other. A page is freed with its last user and kept for
// reuse: a steady load allocates nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <rlalgo/inference/detail/kernels.hpp>

namespace rlalgo::inference {

class KvCache {
 public:
  struct Sequence {
    std::vector<float*> pages;
    std::int64_t length = 0;  // positions filled
  };

  KvCache(std::int64_t layers, std::int64_t kv_heads, std::int64_t head_dim)
      : kv_heads_(kv_heads),
        head_dim_((head_dim + detail::lane - 1) / detail::lane * detail::lane),
        head_size_(head_dim_ * detail::page_positions),
        page_size_(layers * kv_heads * 2 * head_size_) {}
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  [[nodiscard]] std::int64_t padded_head_dim() const noexcept { return head_dim_; }
  // Offsets inside a page.
  [[nodiscard]] std::int64_t key_offset(std::int64_t layer, std::int64_t head) const noexcept {
    return (layer * kv_heads_ + head) * 2 * head_size_;
  }
  [[nodiscard]] std::int64_t value_offset(std::int64_t layer, std::int64_t head) const noexcept {
    return key_offset(layer, head) + head_size_;
  }
  [[nodiscard]] std::size_t pages_in_use() const noexcept { return blocks_.size() - free_.size(); }
  [[nodiscard]] std::size_t pages_allocated() const noexcept { return blocks_.size(); }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return static_cast<std::size_t>(page_size_) * sizeof(float); }

  // Makes room for positions [length, length + count); they are filled by the caller. The last page must not be shared.
  void extend(Sequence& sequence, std::int64_t count) {
    sequence.length += count;
    while (static_cast<std::int64_t>(sequence.pages.size()) * detail::page_positions < sequence.length)
      sequence.pages.push_back(take());
  }

  // Makes `child` (empty) a continuation of `parent`.
  void fork(const Sequence& parent, Sequence& child) {
    child.length = parent.length;
    child.pages.assign(parent.pages.begin(), parent.pages.end());
    for (float* page : child.pages) ++users(page);
    if (parent.length % detail::page_positions == 0) return;
    float* const copy = take();
    std::copy_n(child.pages.back(), page_size_, copy);
    --users(child.pages.back());
    child.pages.back() = copy;
  }

  // Makes `child` (empty) what `parent` was, and `parent` empty.
  void transfer(Sequence& parent, Sequence& child) {
    child.length = std::exchange(parent.length, 0);
    child.pages.assign(parent.pages.begin(), parent.pages.end());
    parent.pages.clear();
  }

  void release(Sequence& sequence) {
    for (float* page : sequence.pages)
      if (--users(page) == 0) free_.push_back(page);
    sequence.pages.clear();
    sequence.length = 0;
  }

 private:
  // A page is preceded by a header of one cache line.
  static constexpr std::align_val_t alignment{64};
  static constexpr std::int64_t header = 16;  // floats
  struct Free {
    void operator()(float* block) const { ::operator delete(block, alignment); }
  };

  static std::int64_t& users(float* page) { return *reinterpret_cast<std::int64_t*>(page - header); }

  float* take() {
    if (free_.empty()) {
      const std::size_t bytes = (static_cast<std::size_t>(page_size_) + header) * sizeof(float);
      blocks_.emplace_back(static_cast<float*>(::operator new(bytes, alignment)));
      free_.reserve(blocks_.capacity());
      free_.push_back(blocks_.back().get() + header);
      new (blocks_.back().get()) std::int64_t{0};
    }
    float* const page = free_.back();
    free_.pop_back();
    users(page) = 1;
    return page;
  }

  std::int64_t kv_heads_, head_dim_, head_size_, page_size_;
  std::vector<std::unique_ptr<float, Free>> blocks_;
  std::vector<float*> free_;
};

}  // namespace rlalgo::inference
