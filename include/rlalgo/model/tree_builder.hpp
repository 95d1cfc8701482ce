// Folds plain sequences into a token tree: a radix trie over token ids.
//
// Rows that start alike share their tokens up to the first difference, wherever it lies: the prompt of a group, a
// system message of the whole batch, the common beginning of two completions, all of a row that occurs twice. A segment
// ends only where rows part. Segments come depth first, children in order of first appearance, so that all descendants
// of a segment are contiguous (which is what attention_plan.hpp joins into one product).
//
// The last token of a row predicts nothing that is scored and is left out unless `keep_last`; a row with an empty
// completion then adds no token. Targets: row after row; completion token i of a row is predicted by the token before
// it.
//
// Errors: [rlalgo.model.22] a row with an empty prompt.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/token_tree.hpp>

namespace rlalgo::model {

struct TreeOptions {
  bool share = true;       // false: each row a segment of its own
  bool keep_last = false;  // also lay out the last token of every row (for hidden states of whole sequences)
  // A fork that would share fewer tokens than this is not made: a segment costs more than a few tokens.
  std::int64_t shortest_shared = 1;
};

namespace detail {

class TreeBuilder {
 public:
  TreeBuilder(std::span<const Sequence> rows, const TreeOptions& options) : rows_(rows), options_(options) {}

  [[nodiscard]] TokenTree build() {
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (rows_[r].prompt.empty()) {
        core::raise("model", 22,
                    {.what = "a row has an empty prompt",
                     .expected = "at least one prompt token, from which the first completion token is predicted",
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

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  // Tokens [begin, end) of row `row`, counted from the start of the row.
  struct Node {
    std::size_t row;
    std::int64_t begin, end;
    std::size_t parent;
    std::vector<std::size_t> children;
    std::int64_t first_id = 0;  // where emit() put the tokens
  };

  [[nodiscard]] std::int64_t token(std::size_t row, std::int64_t i) const {
    const Sequence& s = rows_[row];
    const auto prompt = static_cast<std::int64_t>(s.prompt.size());
    return i < prompt ? s.prompt[static_cast<std::size_t>(i)] : s.completion[static_cast<std::size_t>(i - prompt)];
  }

  // Tokens of a row that are laid out.
  [[nodiscard]] std::int64_t length(std::size_t row) const {
    const auto prompt = static_cast<std::int64_t>(rows_[row].prompt.size());
    const auto completion = static_cast<std::int64_t>(rows_[row].completion.size());
    if (options_.keep_last) return prompt + completion;
    return completion == 0 ? 0 : prompt + completion - 1;
  }

  // Returns the node in which the row ends, `none` for a row without tokens.
  std::size_t insert(std::size_t row) {
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
      if (common_end == size) return child;  // the row ends inside or at the end of this node
      if (common_end < nodes_[child].end) {
        if (common_end - at < options_.shortest_shared) return append(row, at, size, parent);
        split(child, common_end);
      } else if (nodes_[child].children.empty()) {
        // Every row so far ended within this node: it simply goes on with this row.
        nodes_[child].row = row;
        nodes_[child].end = size;
        return child;
      }
      parent = child;
      at = common_end;
    }
  }

  std::size_t append(std::size_t row, std::int64_t begin, std::int64_t end, std::size_t parent) {
    nodes_.push_back({row, begin, end, parent, {}});
    (parent == none ? roots_ : nodes_[parent].children).push_back(nodes_.size() - 1);
    return nodes_.size() - 1;
  }

  // One past the last position up to which the row agrees with the node.
  [[nodiscard]] std::int64_t diverge(std::size_t node, std::size_t row, std::int64_t at, std::int64_t size) const {
    const std::int64_t stop = std::min(size, nodes_[node].end);
    while (at < stop && token(nodes_[node].row, at) == token(row, at)) ++at;
    return at;
  }

  // Cuts a node at `position`: the front keeps its index, the rest becomes its only child. Rows that ended in the rest
  // are found again by walking up from their leaf, so their leaf moves with it.
  void split(std::size_t node, std::int64_t position) {
    nodes_.push_back({nodes_[node].row, position, nodes_[node].end, node, std::move(nodes_[node].children)});
    const std::size_t rest = nodes_.size() - 1;
    for (const std::size_t child : nodes_[rest].children) nodes_[child].parent = rest;
    nodes_[node].children = {rest};
    nodes_[node].end = position;
    for (std::size_t r = 0; r < leaf_.size(); ++r)
      if (leaf_[r] == node && length(r) > position) leaf_[r] = rest;
  }

  void emit(std::size_t root, std::int32_t root_parent) {
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
      }
      for (auto child = node.children.rbegin(); child != node.children.rend(); ++child)
        open.emplace_back(*child, segment);
    }
  }

  void add_targets(std::size_t row) {
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

  std::span<const Sequence> rows_;
  TreeOptions options_;
  std::vector<Node> nodes_;
  std::vector<std::size_t> roots_;
  std::vector<std::size_t> leaf_;  // [rows]
  TokenTree tree_;
};

}  // namespace detail

[[nodiscard]] inline TokenTree build_tree(std::span<const Sequence> rows, const TreeOptions& options = {}) {
  return detail::TreeBuilder(rows, options).build();
}

// Every row a segment of its own: the packed batch without sharing.
[[nodiscard]] inline TokenTree build_flat_tree(std::span<const Sequence> rows) {
  return detail::TreeBuilder(rows, {.share = false}).build();
}

}  // namespace rlalgo::model
