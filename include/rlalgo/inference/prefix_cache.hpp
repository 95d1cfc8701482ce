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
// Memory: 176 bytes a page; nothing is allocated unless the KV cache has grown.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

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
  static constexpr std::int64_t width = detail::page_positions;
  static constexpr PageId none = std::numeric_limits<PageId>::max();

 public:
  // Becomes the keeper of `pages`, which must outlive it.
  explicit PrefixCache(KvCache& pages) : pages_(pages) { pages_.set_keeper(this); }
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache() override {
    clear();
    pages_.set_keeper(nullptr);
  }

  // Gives `sequence` (empty) the pages of the longest known prefix of the first `limit` tokens; their positions.
  std::int64_t match(std::uint64_t tree, const TokenView& tokens, std::int64_t limit, KvCache::Sequence& sequence) {
    PageId parent = none;
    for (std::int64_t begin = 0; begin + width <= limit; begin += width) {
      const PageId found = find(tree, parent, read(tokens, begin));
      if (found == none) break;
      use(found);
      pages_.append(sequence, found);
      sequence.length += width;
      ++sequence.indexed;
      parent = found;
    }
    return sequence.length;
  }

  // Makes the full pages of `sequence`, which holds `tokens`, known. A page that is known already takes the place of
  // the sequence's own, which is freed.
  void insert(std::uint64_t tree, const TokenView& tokens, KvCache::Sequence& sequence) {
    grow();
    for (std::int64_t i = sequence.indexed; (i + 1) * width <= sequence.length; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const PageId parent = i > 0 ? sequence.ids[at - 1] : none;
      const Edge& edge = read(tokens, i * width);
      const PageId known = find(tree, parent, edge);
      if (known == none) {
        add(sequence.ids[at], tree, parent, edge);
      } else {
        use(known);
        pages_.leave(sequence.ids[at]);
        sequence.ids[at] = known;
        sequence.pages[at] = pages_.data(known);
      }
      ++sequence.indexed;
    }
  }

  // Forgets the pages of one tree; of all.
  void drop(std::uint64_t tree) {
    forget([tree](const Node& node) { return node.tree == tree; });
  }
  void clear() {
    forget([](const Node&) { return true; });
  }

  [[nodiscard]] std::size_t known() const noexcept { return known_; }  // pages in the trees, in use or not
  [[nodiscard]] std::size_t kept() const override { return kept_; }    // of these, in no sequence's use

  bool keep(PageId page) override {
    if (page >= nodes_.size() || !nodes_[page].known) return false;
    nodes_[page].idle = true;
    ++kept_;
    if (nodes_[page].children == 0) link(page, newest_);
    return true;
  }

  bool surrender() override {
    const PageId page = nodes_.empty() ? none : nodes_[oldest_].newer;
    if (page == none || page == newest_) return false;
    remove(page);
    if (const PageId parent = nodes_[page].parent; parent != none) {
      --nodes_[parent].children;
      // As old as the child that has just gone.
      if (nodes_[parent].children == 0 && nodes_[parent].idle) link(parent, nodes_[oldest_].newer);
    }
    pages_.free(page);
    return true;
  }

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

  const Edge& read(const TokenView& tokens, std::int64_t begin) {
    for (std::int64_t j = 0; j < width; ++j) edge_[static_cast<std::size_t>(j)] = tokens[begin + j];
    return edge_;
  }

  static std::uint64_t hash_of(std::uint64_t tree, PageId parent, const Edge& edge) {
    std::uint64_t h = tree * 0x9E3779B97F4A7C15ULL ^ parent;
    for (const data::TokenId id : edge) {
      h = (h ^ static_cast<std::uint32_t>(id)) * 0xFF51AFD7ED558CCDULL;
      h ^= h >> 32U;
    }
    return h;
  }

  PageId& bucket(std::uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  PageId find(std::uint64_t tree, PageId parent, const Edge& edge) {
    if (known_ == 0) return none;
    const std::uint64_t hash = hash_of(tree, parent, edge);
    PageId page = bucket(hash);
    while (page != none) {
      const Node& node = nodes_[page];
      if (node.hash == hash && node.tree == tree && node.parent == parent && node.tokens == edge) return page;
      page = node.next;
    }
    return none;
  }

  void add(PageId page, std::uint64_t tree, PageId parent, const Edge& edge) {
    Node& node = nodes_[page];
    node.tokens = edge;
    node.tree = tree;
    node.hash = hash_of(tree, parent, edge);
    node.parent = parent;
    node.children = 0;
    node.known = true;
    node.idle = false;
    node.next = bucket(node.hash);
    bucket(node.hash) = page;
    if (parent != none) ++nodes_[parent].children;
    ++known_;
  }

  // One more sequence uses the page.
  void use(PageId page) {
    Node& node = nodes_[page];
    if (node.idle) {
      node.idle = false;
      --kept_;
      unlink(page);
    }
    pages_.join(page);
  }

  // Takes the page out of its tree; it stays as it is otherwise.
  void remove(PageId page) {
    Node& node = nodes_[page];
    PageId* at = &bucket(node.hash);
    while (*at != page) at = &nodes_[*at].next;
    *at = node.next;
    node.known = false;
    --known_;
    if (!node.idle) return;
    node.idle = false;
    --kept_;
    unlink(page);
  }

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
  void link(PageId page, PageId before) {
    Node& node = nodes_[page];
    node.newer = before;
    node.older = nodes_[before].older;
    nodes_[node.older].newer = page;
    nodes_[before].older = page;
  }
  void unlink(PageId page) {
    Node& node = nodes_[page];
    if (node.newer == none) return;
    nodes_[node.newer].older = node.older;
    nodes_[node.older].newer = node.newer;
    node.newer = node.older = none;
  }

  void grow() {
    if (nodes_.size() >= pages_.pages_allocated() + 2) return;
    std::vector<PageId> idle;
    if (!nodes_.empty())
      for (PageId page = nodes_[oldest_].newer; page != newest_; page = nodes_[page].newer) idle.push_back(page);
    const std::size_t room = std::max<std::size_t>(64, 2 * pages_.pages_allocated());
    if (!nodes_.empty()) nodes_.resize(newest_);
    nodes_.resize(room);
    newest_ = static_cast<PageId>(room - 2);
    oldest_ = static_cast<PageId>(room - 1);
    nodes_[newest_] = nodes_[oldest_] = Node{};
    nodes_[newest_].older = oldest_;
    nodes_[oldest_].newer = newest_;
    for (const PageId page : idle) link(page, newest_);
    std::size_t buckets = 64;
    while (buckets < room) buckets *= 2;
    buckets_.assign(buckets, none);
    for (PageId page = 0; page < newest_; ++page) {
      if (!nodes_[page].known) continue;
      nodes_[page].next = bucket(nodes_[page].hash);
      bucket(nodes_[page].hash) = page;
    }
  }

  KvCache& pages_;
  std::vector<Node> nodes_;  // by page; the last two are the ends of the list of unused leaves
  PageId newest_ = 0, oldest_ = 0;
  std::vector<PageId> buckets_;  // a power of two
  std::size_t known_ = 0, kept_ = 0;
  Edge edge_{};
};

}  // namespace rlalgo::inference
