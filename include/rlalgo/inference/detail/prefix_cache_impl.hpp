// Definitions of prefix_cache.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/prefix_cache.hpp>

namespace rlalgo::inference {

RLALGO_INLINE PrefixCache::~PrefixCache() {
  clear();
  pages_.set_keeper(nullptr);
}

RLALGO_INLINE std::int64_t PrefixCache::match(std::uint64_t tree, const TokenView& tokens, std::int64_t limit,
                                              KvCache::Sequence& sequence) {
  PageId parent = none;
  limit = known_length(tree, tokens, limit);
  for (std::int64_t begin = 0; begin + width <= limit; begin += width) {
    const PageId found = find(tree, parent, read(tokens, begin));
    use(found);
    pages_.append(sequence, found);
    sequence.length += width;
    ++sequence.indexed;
    parent = found;
  }
  if (pages_.carried_bytes() > 0 && parent != none) pages_.adopt(sequence, parent);
  return sequence.length;
}

RLALGO_INLINE std::int64_t PrefixCache::known_length(std::uint64_t tree, const TokenView& tokens, std::int64_t limit) {
  const bool carried = pages_.carried_bytes() > 0;
  std::int64_t begin = 0, usable = 0;
  for (PageId page = none; begin + width <= limit;) {
    if (page = find(tree, page, read(tokens, begin)); page == none) break;
    begin += width;
    if (!carried || pages_.has_saved(page)) usable = begin;
  }
  return usable;
}

RLALGO_INLINE std::int64_t PrefixCache::known_pages(std::uint64_t tree, const TokenView& tokens, std::int64_t limit) {
  std::int64_t begin = 0;
  for (PageId page = none; begin + width <= limit; begin += width)
    if (page = find(tree, page, read(tokens, begin)); page == none) break;
  return begin;
}

RLALGO_INLINE void PrefixCache::insert(std::uint64_t tree, const TokenView& tokens, KvCache::Sequence& sequence) {
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
      pages_.move_saved(sequence.ids[at], known);
      pages_.leave(sequence.ids[at]);
      sequence.ids[at] = known;
      sequence.pages[at] = pages_.data(known);
    }
    ++sequence.indexed;
  }
}

RLALGO_INLINE void PrefixCache::drop(std::uint64_t tree) {
  forget([tree](const Node& node) { return node.tree == tree; });
}

RLALGO_INLINE void PrefixCache::clear() {
  forget([](const Node&) { return true; });
}

RLALGO_INLINE bool PrefixCache::keep(PageId page) {
  if (page >= nodes_.size() || !nodes_[page].known) return false;
  nodes_[page].idle = true;
  ++kept_;
  if (nodes_[page].children == 0) link(page, newest_);
  return true;
}

RLALGO_INLINE bool PrefixCache::surrender() {
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

RLALGO_INLINE const PrefixCache::Edge& PrefixCache::read(const TokenView& tokens, std::int64_t begin) {
  for (std::int64_t j = 0; j < width; ++j) edge_[static_cast<std::size_t>(j)] = tokens[begin + j];
  return edge_;
}

RLALGO_INLINE std::uint64_t PrefixCache::hash_of(std::uint64_t tree, PageId parent, const Edge& edge) {
  std::uint64_t h = tree * 0x9E3779B97F4A7C15ULL ^ parent;
  for (const data::TokenId id : edge) {
    h = (h ^ static_cast<std::uint32_t>(id)) * 0xFF51AFD7ED558CCDULL;
    h ^= h >> 32U;
  }
  return h;
}

RLALGO_INLINE PrefixCache::PageId PrefixCache::find(std::uint64_t tree, PageId parent, const Edge& edge) {
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

RLALGO_INLINE void PrefixCache::add(PageId page, std::uint64_t tree, PageId parent, const Edge& edge) {
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

RLALGO_INLINE void PrefixCache::use(PageId page) {
  Node& node = nodes_[page];
  if (node.idle) {
    node.idle = false;
    --kept_;
    unlink(page);
  }
  pages_.join(page);
}

RLALGO_INLINE void PrefixCache::remove(PageId page) {
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

RLALGO_INLINE void PrefixCache::link(PageId page, PageId before) {
  Node& node = nodes_[page];
  node.newer = before;
  node.older = nodes_[before].older;
  nodes_[node.older].newer = page;
  nodes_[before].older = page;
}

RLALGO_INLINE void PrefixCache::unlink(PageId page) {
  Node& node = nodes_[page];
  if (node.newer == none) return;
  nodes_[node.newer].older = node.older;
  nodes_[node.older].newer = node.newer;
  node.newer = node.older = none;
}

RLALGO_INLINE void PrefixCache::grow() {
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

}  // namespace rlalgo::inference
