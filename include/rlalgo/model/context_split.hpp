// How the tokens of a tree are shared by the ranks of a context group, and what is left of a tree and of its attention for
// one of them.
//
//   neighbours  each rank has one run of tokens side by side
//   balanced    the tokens are cut into pieces of equal size, which are sorted by the keys that their tokens see and dealt
//               forth and back: ranks have as many tokens and nearly as much attention. Of one sequence: the zigzag of Zhu
//               (ring-flash-attention) and Llama 3 (arXiv 2407.21783, section 3.3.2), pieces i and 2C − 1 − i of 2C
//   stripes     short pieces dealt in turn (striped attention, Brandon et al., arXiv 2311.09431, whose stripes are of one token)
//
// A rank's tokens keep their order. Whatever the sharing, each query meets each of its keys once: results differ by rounding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/model/attention_plan.hpp>
#include <rlalgo/model/token_tree.hpp>

namespace rlalgo::model {

enum class Dealing { neighbours, balanced, stripes };

struct TokenSpan {
  std::int64_t begin, end;
  friend bool operator==(const TokenSpan&, const TokenSpan&) = default;
};
using TokenSpans = std::vector<TokenSpan>;  // ascending, apart from each other

[[nodiscard]] std::int64_t tokens_of(const TokenSpans& spans);

// Of each rank; some may have none.
[[nodiscard]] std::vector<TokenSpans> split_tokens(const TokenTree& tree, int ranks, Dealing dealing);

// What one rank has of a tree: ids, positions and targets, whose sources are counted among its tokens. No segments.
struct ContextPart {
  TokenTree tree;
  std::vector<std::int64_t> targets;  // [N'] number of each among those of the tree
  std::vector<std::int64_t> rows;     // [T'] number of each token among those of the tree
  std::vector<std::int64_t>
      source_rows;  // [S'] of each source, taken once and in order: its number among those of the tree
};
[[nodiscard]] ContextPart part_of(const TokenTree& tree, const TokenSpans& own);

// How many targets each rank has, and all of them in the order of the ranks.
struct TargetOwners {
  std::vector<std::int64_t> counts;   // of each rank
  std::vector<std::int64_t> targets;  // [N] numbers among those of the tree, rank after rank
};
[[nodiscard]] TargetOwners owners_of_targets(const TokenTree& tree, const std::vector<TokenSpans>& split);

// The pieces of a plan in which `queries` see `keys`; both are counted from the first token of their rank. The keys of
// another rank bring cross pieces only.
[[nodiscard]] AttentionPlan plan_between(const AttentionPlan& plan, const TokenSpans& queries, const TokenSpans& keys);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/context_split_impl.hpp>
#endif
