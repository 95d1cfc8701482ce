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

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

  [[nodiscard]] TokenTree build();

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  // Tokens [begin, end) of row `row`, counted from the start of the row.
  struct Node {
    std::size_t row;
    std::int64_t begin, end;
    std::size_t parent;
    std::vector<std::size_t> children;
    std::int64_t first_id = 0;  // where emit() put the tokens
    std::size_t routed = none;  // a row of this node whose experts are known
  };

  [[nodiscard]] std::int64_t token(std::size_t row, std::int64_t i) const;

  // Tokens of a row that are laid out.
  [[nodiscard]] std::int64_t length(std::size_t row) const;

  // Returns the node in which the row ends, `none` for a row without tokens.
  std::size_t insert(std::size_t row);

  std::size_t append(std::size_t row, std::int64_t begin, std::int64_t end, std::size_t parent);

  // One past the last position up to which the row agrees with the node.
  [[nodiscard]] std::int64_t diverge(std::size_t node, std::size_t row, std::int64_t at, std::int64_t size) const;

  // Cuts a node at `position`: the front keeps its index, the rest becomes its only child. Rows that ended in the rest
  // are found again by walking up from their leaf, so their leaf moves with it.
  void split(std::size_t node, std::int64_t position);

  // Experts of token i of a node, W of them, where some row knows any.
  void add_experts(const Node& node, std::int64_t i);
  [[nodiscard]] std::size_t known(std::size_t row) const { return rows_[row].routed_experts.empty() ? none : row; }

  void emit(std::size_t root, std::int32_t root_parent);

  void add_targets(std::size_t row);

  std::span<const Sequence> rows_;
  TreeOptions options_;
  std::vector<Node> nodes_;
  std::vector<std::size_t> roots_;
  std::vector<std::size_t> leaf_;  // [rows]
  std::size_t routed_width_ = 0;   // W; 0 = no row knows experts
  TokenTree tree_;
};

}  // namespace detail

[[nodiscard]] TokenTree build_tree(std::span<const Sequence> rows, const TreeOptions& options = {});

// Every row a segment of its own: the packed batch without sharing.
[[nodiscard]] TokenTree build_flat_tree(std::span<const Sequence> rows);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/tree_builder_impl.hpp>
#endif
