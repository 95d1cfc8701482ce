// How attention over a token tree is cut into dense pieces: computed once per batch, used by every layer.
//
//   own     each segment causally over itself. Short segments of similar length share one padded piece.
//   cross   a run of queries over a run of earlier keys, all of them visible, no mask.
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

}  // namespace detail

[[nodiscard]] inline AttentionPlan plan_attention(const TokenTree& tree) {
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
    if (size > detail::longest_padded_segment) {
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
        const auto same = std::find_if(plan.cross.rbegin(), plan.cross.rend(), [&](const AttentionPlan::Cross& c) {
          return c.query_end == piece.query_begin && c.key_begin == piece.key_begin && c.key_end == piece.key_end;
        });
        if (same != plan.cross.rend()) {
          same->query_end = piece.query_end;
        } else {
          plan.cross.push_back(piece);
        }
      }
      visible = std::min(visible, a.prefix_length);
      ancestor = a.parent;
    }
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
