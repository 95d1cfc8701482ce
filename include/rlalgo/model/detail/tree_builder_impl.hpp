// Definitions of tree_builder.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/model/tree_builder.hpp>

namespace rlalgo::model {

namespace detail {

RLALGO_INLINE TokenTree TreeBuilder::build() {
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    if (rows_[r].prompt.empty()) {
      core::raise("model", 22,
                  {.what = "a row has an empty prompt",
                   .expected = "at least one prompt token, from which the first completion token is predicted",
                   .where = "row " + std::to_string(r)});
    }
    if (const std::size_t routed = rows_[r].routed_experts.size(); routed > 0) {
      const std::size_t tokens = rows_[r].prompt.size() + rows_[r].completion.size() - 1;
      const std::size_t width = routed / std::max<std::size_t>(1, tokens);
      if (routed_width_ == 0) routed_width_ = width;
      if (width == 0 || width != routed_width_ || width * tokens != routed)
        core::raise("model", 22,
                    {.what = "a row has experts for another number of tokens than it has",
                     .found = std::to_string(routed) + " experts",
                     .expected = std::to_string(tokens) + " tokens times the same number for all rows",
                     .where = "row " + std::to_string(r)});
    }
    leaf_.push_back(insert(r));
  }
  tree_.segments.reserve(nodes_.size());
  for (const std::size_t root : roots_) emit(root, -1);
  tree_.row_begin.push_back(0);
  for (std::size_t r = 0; r < rows_.size(); ++r) add_targets(r);
  return std::move(tree_);
}

RLALGO_INLINE std::int64_t TreeBuilder::token(std::size_t row, std::int64_t i) const {
  const Sequence& s = rows_[row];
  const auto prompt = static_cast<std::int64_t>(s.prompt.size());
  return i < prompt ? s.prompt[static_cast<std::size_t>(i)] : s.completion[static_cast<std::size_t>(i - prompt)];
}

RLALGO_INLINE std::int64_t TreeBuilder::length(std::size_t row) const {
  const auto prompt = static_cast<std::int64_t>(rows_[row].prompt.size());
  const auto completion = static_cast<std::int64_t>(rows_[row].completion.size());
  if (options_.keep_last) return prompt + completion;
  return completion == 0 ? 0 : prompt + completion - 1;
}

RLALGO_INLINE std::size_t TreeBuilder::insert(std::size_t row) {
  const std::int64_t size = length(row);
  if (size == 0) return none;
  std::size_t parent = none;
  std::int64_t at = 0;
  while (true) {
    auto& siblings = parent == none ? roots_ : nodes_[parent].children;
    // The sibling that shares most. Several begin alike only where a short fork was not made.
    std::size_t child = none;
    std::int64_t common_end = at;
    for (const std::size_t candidate : siblings) {
      const std::int64_t reach = options_.share ? diverge(candidate, row, at, size) : at;
      if (reach > common_end) {
        child = candidate;
        common_end = reach;
      }
    }
    if (child == none) return append(row, at, size, parent);
    if (nodes_[child].routed == none) nodes_[child].routed = known(row);
    if (common_end == size) return child;  // the row ends inside or at the end of this node
    if (common_end < nodes_[child].end) {
      if (common_end - at < options_.shortest_shared) return append(row, at, size, parent);
      split(child, common_end);
    } else if (nodes_[child].children.empty()) {
      // Every row so far ended within this node: it simply goes on with this row.
      nodes_[child].row = row;
      nodes_[child].end = size;
      if (known(row) != none) nodes_[child].routed = row;
      return child;
    }
    parent = child;
    at = common_end;
  }
}

RLALGO_INLINE std::size_t TreeBuilder::append(std::size_t row, std::int64_t begin, std::int64_t end,
                                              std::size_t parent) {
  nodes_.push_back({.row = row, .begin = begin, .end = end, .parent = parent, .children = {}, .routed = known(row)});
  (parent == none ? roots_ : nodes_[parent].children).push_back(nodes_.size() - 1);
  return nodes_.size() - 1;
}

RLALGO_INLINE std::int64_t TreeBuilder::diverge(std::size_t node, std::size_t row, std::int64_t at,
                                                std::int64_t size) const {
  const std::int64_t stop = std::min(size, nodes_[node].end);
  while (at < stop && token(nodes_[node].row, at) == token(row, at)) ++at;
  return at;
}

RLALGO_INLINE void TreeBuilder::split(std::size_t node, std::int64_t position) {
  nodes_.push_back({.row = nodes_[node].row,
                    .begin = position,
                    .end = nodes_[node].end,
                    .parent = node,
                    .children = std::move(nodes_[node].children),
                    .routed = nodes_[node].routed});
  const std::size_t rest = nodes_.size() - 1;
  for (const std::size_t child : nodes_[rest].children) nodes_[child].parent = rest;
  nodes_[node].children = {rest};
  nodes_[node].end = position;
  for (std::size_t r = 0; r < leaf_.size(); ++r)
    if (leaf_[r] == node && length(r) > position) leaf_[r] = rest;
}

RLALGO_INLINE void TreeBuilder::emit(std::size_t root, std::int32_t root_parent) {
  // An explicit stack: a tree may be as deep as there are rows.
  std::vector<std::pair<std::size_t, std::int32_t>> open = {{root, root_parent}};
  while (!open.empty()) {
    const auto [index, parent] = open.back();
    open.pop_back();
    Node& node = nodes_[index];
    const auto segment = static_cast<std::int32_t>(tree_.segments.size());
    node.first_id = tree_.tokens();
    tree_.segments.push_back({node.first_id, node.first_id + node.end - node.begin, parent, node.begin});
    for (std::int64_t i = node.begin; i < node.end; ++i) {
      tree_.ids.push_back(token(node.row, i));
      tree_.positions.push_back(i);
      add_experts(node, i);
    }
    for (auto child = node.children.rbegin(); child != node.children.rend(); ++child)
      open.emplace_back(*child, segment);
  }
}

RLALGO_INLINE void TreeBuilder::add_experts(const Node& node, std::int64_t i) {
  if (routed_width_ == 0) return;
  auto& out = tree_.routed_experts;
  const std::size_t begin = static_cast<std::size_t>(i) * routed_width_;
  const auto known = node.routed == none ? std::span<const std::uint16_t>() : rows_[node.routed].routed_experts;
  if (begin + routed_width_ <= known.size())
    out.insert(out.end(), known.begin() + static_cast<std::ptrdiff_t>(begin),
               known.begin() + static_cast<std::ptrdiff_t>(begin + routed_width_));
  else
    out.insert(out.end(), routed_width_, chosen_by_router);
}

RLALGO_INLINE void TreeBuilder::add_targets(std::size_t row) {
  const auto prompt = static_cast<std::int64_t>(rows_[row].prompt.size());
  const auto completion = rows_[row].completion;
  const auto first = static_cast<std::ptrdiff_t>(tree_.source.size());
  // From the last target backwards, up the chain.
  std::size_t node = leaf_[row];
  for (std::int64_t i = prompt + static_cast<std::int64_t>(completion.size()) - 2;
       i >= prompt - 1 && !completion.empty(); --i) {
    while (i < nodes_[node].begin) node = nodes_[node].parent;
    tree_.source.push_back(nodes_[node].first_id + i - nodes_[node].begin);
  }
  std::reverse(tree_.source.begin() + first, tree_.source.end());
  tree_.target.insert(tree_.target.end(), completion.begin(), completion.end());
  tree_.row_begin.push_back(static_cast<std::int64_t>(tree_.target.size()));
}

}  // namespace detail

RLALGO_INLINE TokenTree build_tree(std::span<const Sequence> rows, const TreeOptions& options) {
  return detail::TreeBuilder(rows, options).build();
}

RLALGO_INLINE TokenTree build_flat_tree(std::span<const Sequence> rows) {
  return detail::TreeBuilder(rows, {.share = false}).build();
}

}  // namespace rlalgo::model
