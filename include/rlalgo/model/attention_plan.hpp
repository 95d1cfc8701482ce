// How attention over a token tree is cut into dense pieces: computed once per batch, used by every layer.
//
//   own     each segment causally over itself. Short segments of similar length share one padded piece.
//   cross   a run of queries over a run of earlier keys, all of them visible, no mask.
//
// With a sliding window (a token sees itself and window − 1 tokens before it) queries are cut into blocks no longer
// than the window; keys that no query of a block sees are left out, and only the edge, at most one block of keys, needs
// a mask. Every query of a piece sees a key of it.
//
// Segments that lie side by side and see the same stretch of an ancestor share one cross piece: all completions of a
// group read their prompt in one product. The pieces of one query are merged by their log-sum-exp, so no [T, T] mask
// exists.
//
// Errors: [rlalgo.model.16] the segments do not form a valid forest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/model/token_tree.hpp>

namespace rlalgo::model {

struct AttentionPlan {
  // Causal self-attention of segments of at most `length` tokens, padded to it.
  struct Own {
    std::int64_t length = 0;
    std::vector<std::int64_t> begins, sizes;  // one entry per segment
  };
  struct Cross {
    std::int64_t query_begin, query_end, key_begin, key_end;
    bool masked = false;  // query i sees key j of the piece if j > i + offset
    std::int64_t offset = 0;
  };
  // A segment with all that it sees: its tokens are queries [begin, end), and causal from the end over these runs of keys, which are in the
  // order of their positions and end with the segment itself. With a window keys that no query sees are left out.
  struct Whole {
    struct Run {
      std::int64_t begin, end;
    };
    std::int64_t begin = 0, end = 0, keys = 0;
    std::vector<Run> runs = {};
  };
  std::int64_t tokens = 0;
  std::int64_t window = 0;  // 0: none
  std::vector<Own> own;
  std::vector<Cross> cross;
  std::vector<Whole> whole = {};  // the same cut by segments; empty of a part of a plan
};

namespace detail {

// Above this length a segment is a piece of its own, not padded.
inline constexpr std::int64_t longest_padded_segment = 128;

[[nodiscard]] std::int64_t padded_length(std::int64_t size);

[[noreturn]] void raise_bad_tree(std::size_t segment, const std::string& found, const std::string& expected);

// A run of tokens at positions side by side.
struct TokenRun {
  std::int64_t begin, end, position;
};

inline constexpr std::int64_t longest_window_block = 256;

// The pieces in which `queries` see `keys`, all of them earlier, through a window.
void add_windowed(AttentionPlan& plan, const TokenRun& queries, const TokenRun& keys, std::int64_t window);

// Adds a segment whose last token cannot see its whole chain. `chain`: what it sees of its ancestors.
void add_windowed_segment(AttentionPlan& plan, const Segment& segment, const std::vector<TokenRun>& chain,
                          std::int64_t window);

}  // namespace detail

// `window` 0: none.
[[nodiscard]] AttentionPlan plan_attention(const TokenTree& tree, std::int64_t window = 0);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/attention_plan_impl.hpp>
#endif
