// Definitions of attention_plan.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/attention_plan.hpp>
#include <rlalgo/model/token_tree.hpp>

namespace rlalgo::model {

namespace detail {

RLALGO_INLINE std::int64_t padded_length(std::int64_t size) {
  const std::int64_t step = size <= 32 ? 8 : 16;
  return (size + step - 1) / step * step;
}

RLALGO_INLINE void raise_bad_tree(std::size_t segment, const std::string& found, const std::string& expected) {
  core::raise("model", 16,
              {.what = "invalid token tree",
               .found = found,
               .expected = expected,
               .where = "segment " + std::to_string(segment)});
}

RLALGO_INLINE void add_windowed(AttentionPlan& plan, const TokenRun& queries, const TokenRun& keys,
                                std::int64_t window) {
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

RLALGO_INLINE void add_windowed_segment(AttentionPlan& plan, const Segment& segment, const std::vector<TokenRun>& chain,
                                        std::int64_t window) {
  const std::int64_t block = std::min(window, longest_window_block);
  for (std::int64_t begin = segment.begin; begin < segment.end; begin += block) {
    const TokenRun queries{begin, std::min(begin + block, segment.end), segment.prefix_length + begin - segment.begin};
    plan.own.push_back({queries.end - begin, {begin}, {queries.end - begin}});
    if (begin > segment.begin) add_windowed(plan, queries, {segment.begin, begin, segment.prefix_length}, window);
    for (const TokenRun& run : chain) add_windowed(plan, queries, run, window);
  }
}

// `chain`: what the segment sees of its ancestors, the nearest first.
inline AttentionPlan::Whole whole_of(const Segment& segment, const std::vector<TokenRun>& chain, std::int64_t window) {
  AttentionPlan::Whole out{.begin = segment.begin, .end = segment.end};
  out.runs.push_back({segment.begin, segment.end});
  out.keys = segment.end - segment.begin;
  std::int64_t left = window > 0 ? window - 1 : segment.prefix_length;  // keys before it that its first token sees
  for (const TokenRun& run : chain) {
    const std::int64_t seen = std::min(left, run.end - run.begin);
    if (seen > 0) out.runs.push_back({run.end - seen, run.end});
    out.keys += seen;
    left -= seen;
  }
  std::reverse(out.runs.begin(), out.runs.end());
  return out;
}

}  // namespace detail

RLALGO_INLINE AttentionPlan plan_attention(const TokenTree& tree, std::int64_t window) {
  AttentionPlan plan;
  plan.tokens = tree.tokens();
  plan.window = window;
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
    plan.whole.push_back(detail::whole_of(segment, chain, window));
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
