// Finds the pages of prefixes that were computed before: a radix tree over token ids whose edges are whole pages.
//
// A node is a page: the 32 tokens in it, after the tokens of its ancestors, under one set of weights ("tree"). A
// request takes the pages of the longest known prefix instead of computing them. Keys and values are functions of the
// weights and of the tokens up to theirs alone, to the bit, so a hit changes no number.
//
// Pages that no sequence uses any more stay until the KV cache needs them, least recently used leaf first. A sequence
// that holds a page holds its ancestors, so an unused page has only unused descendants. drop(tree) forgets what was
// computed with weights that are no more; a sequence that still runs on them must not be inserted afterwards.
//
// Where sequences carry a state, a prefix serves up to the last of its pages behind which that was saved (KvCache::save).
//
// Memory: 176 bytes a page; nothing is allocated unless the KV cache has grown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/kv_cache.hpp>

namespace rlalgo::inference {

// The tokens of a sequence: a prompt and what follows it.
struct TokenView {
  std::span<const data::TokenId> prompt, completion = {};
  [[nodiscard]] std::int64_t size() const noexcept {
    return static_cast<std::int64_t>(prompt.size() + completion.size());
  }
  [[nodiscard]] data::TokenId operator[](std::int64_t i) const noexcept {
    const auto at = static_cast<std::size_t>(i);
    return at < prompt.size() ? prompt[at] : completion[at - prompt.size()];
  }
};

class PrefixCache final : public KvCache::Keeper {
  using PageId = KvCache::PageId;
  static constexpr std::int64_t width = cpu::page_positions;
  static constexpr PageId none = std::numeric_limits<PageId>::max();

 public:
  // Becomes the keeper of `pages`, which must outlive it.
  explicit PrefixCache(KvCache& pages) : pages_(pages) { pages_.set_keeper(this); }
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  RLALGO_INLINE ~PrefixCache() override;

  // Gives `sequence` (empty) the pages of the longest known prefix of the first `limit` tokens; their positions.
  std::int64_t match(std::uint64_t tree, const TokenView& tokens, std::int64_t limit, KvCache::Sequence& sequence);

  // The positions that match() would give, which are not taken.
  std::int64_t known_length(std::uint64_t tree, const TokenView& tokens, std::int64_t limit);

  // The positions of known pages, whether their states are saved or not.
  std::int64_t known_pages(std::uint64_t tree, const TokenView& tokens, std::int64_t limit);

  // Makes the full pages of `sequence`, which holds `tokens`, known. A page that is known already takes the place of
  // the sequence's own, which is freed.
  void insert(std::uint64_t tree, const TokenView& tokens, KvCache::Sequence& sequence);

  // Forgets the pages of one tree; of all.
  void drop(std::uint64_t tree);
  void clear();

  [[nodiscard]] std::size_t known() const noexcept { return known_; }  // pages in the trees, in use or not
  [[nodiscard]] std::size_t kept() const override { return kept_; }    // of these, in no sequence's use

  RLALGO_INLINE bool keep(PageId page) override;

  RLALGO_INLINE bool surrender() override;

 private:
  using Edge = std::array<data::TokenId, static_cast<std::size_t>(width)>;
  struct Node {
    Edge tokens{};
    std::uint64_t tree = 0, hash = 0;
    PageId parent = none, next = none;  // next: in the bucket of its hash
    PageId older = none, newer = none;  // among unused leaves
    std::uint32_t children = 0;
    bool known = false, idle = false;
  };

  const Edge& read(const TokenView& tokens, std::int64_t begin);

  static std::uint64_t hash_of(std::uint64_t tree, PageId parent, const Edge& edge);

  PageId& bucket(std::uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  PageId find(std::uint64_t tree, PageId parent, const Edge& edge);

  void add(PageId page, std::uint64_t tree, PageId parent, const Edge& edge);

  // One more sequence uses the page.
  void use(PageId page);

  // Takes the page out of its tree; it stays as it is otherwise.
  void remove(PageId page);

  template <class Which>
  void forget(Which&& which) {
    if (known_ == 0) return;
    for (PageId page = 0; page < newest_; ++page) {
      if (!nodes_[page].known || !which(nodes_[page])) continue;
      const bool idle = nodes_[page].idle;
      remove(page);
      if (idle) pages_.free(page);
    }
  }

  // Unused leaves form a list between two nodes that are no pages.
  void link(PageId page, PageId before);
  void unlink(PageId page);

  void grow();

  KvCache& pages_;
  std::vector<Node> nodes_;  // by page; the last two are the ends of the list of unused leaves
  PageId newest_ = 0, oldest_ = 0;
  std::vector<PageId> buckets_;  // a power of two
  std::size_t known_ = 0, kept_ = 0;
  Edge edge_{};
};

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/prefix_cache_impl.hpp>
#endif
