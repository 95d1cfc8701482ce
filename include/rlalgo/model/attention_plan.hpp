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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
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
  std::int64_t tokens = 0;
  std::vector<Own> own;
  std::vector<Cross> cross;
};

namespace detail {

// Above this length a segment is a piece of its own, not padded.
inline constexpr std::int64_t longest_padded_segment = 128;

[[nodiscard]] inline std::int64_t padded_length(std::int64_t size) {
  const std::int64_t step = size <= 32 ? 8 : 16;
  return (size + step - 1) / step * step;
}

[[noreturn]] inline void raise_bad_tree(std::size_t segment, const std::string& found, const std::string& expected) {
  core::raise("model", 16,
              {.what = "invalid token tree",
               .found = found,
               .expected = expected,
               .where = "segment " + std::to_string(segment)});
}

// A run of tokens at positions side by side.
struct TokenRun {
  std::int64_t begin, end, position;
};

inline constexpr std::int64_t longest_window_block = 256;

// The pieces in which `queries` see `keys`, all of them earlier, through a window.
inline void add_windowed(AttentionPlan& plan, const TokenRun& queries, const TokenRun& keys, std::int64_t window) {
  const std::int64_t last = queries.position + queries.end - queries.begin - 1;  // position of the last query
  const std::int64_t behind = keys.position + keys.end - keys.begin;             // one past the last key's
  const std::int64_t low = std::max(keys.position, queries.position - window + 1);
  const std::int64_t full = std::max(low, last - window + 1);  // seen by every query from here on
  const auto index = [&](std::int64_t position) { return keys.begin + position - keys.position; };
  if (const std::int64_t edge = std::min(full, behind); low < edge) {
    const std::int64_t seeing = std::min(last, edge - 1 + window - 1) - queries.position + 1;
    plan.cross.push_back(
        {queries.begin, queries.begin + seeing, index(low), index(edge), true, queries.position - window - low});
  }
  if (full < behind) plan.cross.push_back({queries.begin, queries.end, index(full), index(behind)});
}

// Adds a segment whose last token cannot see its whole chain. `chain`: what it sees of its ancestors.
inline void add_windowed_segment(AttentionPlan& plan, const Segment& segment, const std::vector<TokenRun>& chain,
                                 std::int64_t window) {
  const std::int64_t block = std::min(window, longest_window_block);
  for (std::int64_t begin = segment.begin; begin < segment.end; begin += block) {
    const TokenRun queries{begin, std::min(begin + block, segment.end), segment.prefix_length + begin - segment.begin};
    plan.own.push_back({queries.end - begin, {begin}, {queries.end - begin}});
    if (begin > segment.begin) add_windowed(plan, queries, {segment.begin, begin, segment.prefix_length}, window);
    for (const TokenRun& run : chain) add_windowed(plan, queries, run, window);
  }
}

}  // namespace detail

// `window` 0: none.
[[nodiscard]] inline AttentionPlan plan_attention(const TokenTree& tree, std::int64_t window = 0) {
  AttentionPlan plan;
  plan.tokens = tree.tokens();
  std::map<std::int64_t, AttentionPlan::Own> short_segments;
  std::int64_t covered = 0;
  for (std::size_t s = 0; s < tree.segments.size(); ++s) {
    const Segment& segment = tree.segments[s];
    const std::int64_t size = segment.end - segment.begin;
    if (segment.begin != covered || size < 0)
      detail::raise_bad_tree(s, "begin " + std::to_string(segment.begin), std::to_string(covered));
    covered = segment.end;
    if (size == 0) continue;
    const bool windowed = window > 0 && segment.prefix_length + size > window;
    std::vector<detail::TokenRun> chain;
    if (windowed) {
      // Its own pieces are cut by add_windowed_segment.
    } else if (size > detail::longest_padded_segment) {
      plan.own.push_back({size, {segment.begin}, {size}});
    } else {
      AttentionPlan::Own& group = short_segments[detail::padded_length(size)];
      group.begins.push_back(segment.begin);
      group.sizes.push_back(size);
    }
    // Walk up the chain: the ancestor that holds positions [first, visible) of what this segment sees.
    std::int64_t visible = segment.prefix_length;
    std::int32_t ancestor = segment.parent;
    while (visible > 0) {
      if (ancestor < 0 || static_cast<std::size_t>(ancestor) >= s) {
        detail::raise_bad_tree(s, "parent " + std::to_string(ancestor), "an earlier segment holding the prefix");
      }
      const Segment& a = tree.segments[static_cast<std::size_t>(ancestor)];
      if (visible > a.prefix_length + (a.end - a.begin)) {
        detail::raise_bad_tree(s, "prefix_length " + std::to_string(visible),
                               "at most " + std::to_string(a.prefix_length + a.end - a.begin));
      }
      if (visible > a.prefix_length) {
        const AttentionPlan::Cross piece{segment.begin, segment.end, a.begin, a.begin + visible - a.prefix_length};
        chain.push_back({piece.key_begin, piece.key_end, a.prefix_length});
        const auto same = std::find_if(plan.cross.rbegin(), plan.cross.rend(), [&](const AttentionPlan::Cross& c) {
          return !c.masked && c.query_end == piece.query_begin && c.key_begin == piece.key_begin &&
                 c.key_end == piece.key_end;
        });
        if (windowed) {
          // Its queries see different stretches of this.
        } else if (same != plan.cross.rend()) {
          same->query_end = piece.query_end;
        } else {
          plan.cross.push_back(piece);
        }
      }
      visible = std::min(visible, a.prefix_length);
      ancestor = a.parent;
    }
    if (windowed) detail::add_windowed_segment(plan, segment, chain, window);
  }
  if (covered != plan.tokens) {
    detail::raise_bad_tree(tree.segments.size(), std::to_string(covered) + " tokens in segments",
                           std::to_string(plan.tokens));
  }
  for (auto& [length, group] : short_segments) {
    // No row needs more than the longest of its group.
    group.length = *std::max_element(group.sizes.begin(), group.sizes.end());
    plan.own.push_back(std::move(group));
  }
  return plan;
}

}  // namespace rlalgo::model
