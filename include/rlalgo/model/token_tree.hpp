// The one batch layout of the model: flat tokens in segments that form a forest. No padding exists.
//
//   segment s attends causally to itself and to the first `prefix_length` tokens of its parent chain
//   (the concatenation of its ancestors' tokens, root first, each ancestor cut where its child forks off).
//
// One idea serves packed sequences (no parent), a GRPO group (the prompt once, G children), a DPO pair, multi-turn
// rollouts that fork late, and prompts with a common system message. `build_tree` folds plain sequences into the forest
// (a radix tree over token ids), so no sampler or loss has to know.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rlalgo::model {

struct Segment {
  std::int64_t begin = 0;          // first token in `ids`
  std::int64_t end = 0;            // one past the last
  std::int32_t parent = -1;        // segment index, -1 = root; parents come before children
  std::int64_t prefix_length = 0;  // tokens of the parent chain this segment sees = position of its first token
};

struct TokenTree {
  std::vector<std::int64_t> ids;        // [T]
  std::vector<std::int64_t> positions;  // [T] distance from the root of the sequence
  std::vector<Segment> segments;        // topological order

  // The completion tokens to score, row after row: target n of row r is predicted by the hidden state at source[n].
  std::vector<std::int64_t> source;     // [N] index into ids
  std::vector<std::int64_t> target;     // [N] token id
  std::vector<std::int64_t> row_begin;  // [rows + 1] offsets into source/target
  std::vector<std::uint16_t> routed_experts =
      {};                       // [T, W] or empty: experts that tokens pass again (router_replay.hpp)
  std::int64_t untempered = 0;  // so many of the last targets are scored at temperature 1, whatever is asked

  [[nodiscard]] std::int64_t tokens() const { return static_cast<std::int64_t>(ids.size()); }
  [[nodiscard]] std::int64_t targets() const { return static_cast<std::int64_t>(target.size()); }
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(row_begin.size()) - 1; }
};

// One row: the log-probs of `completion` given `prompt` are wanted. `prompt` must not be empty.
struct Sequence {
  std::span<const std::int32_t> prompt;
  std::span<const std::int32_t> completion;
  std::span<const std::uint16_t> routed_experts = {};  // [prompt + completion − 1, W] or empty
};

// In TokenTree::routed_experts: the router chooses.
inline constexpr std::uint16_t chosen_by_router = 0xFFFF;

}  // namespace rlalgo::model
