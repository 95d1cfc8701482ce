// Definitions of context_split.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/attention_plan.hpp>
#include <rlalgo/model/context_split.hpp>
#include <rlalgo/model/token_tree.hpp>

namespace rlalgo::model {

namespace detail {

inline constexpr std::int64_t stripes_per_rank = 8;

// Where each span begins among the tokens of its rank.
inline std::vector<std::int64_t> places_of(const TokenSpans& spans) {
  std::vector<std::int64_t> out;
  std::int64_t at = 0;
  for (const TokenSpan& one : spans) {
    out.push_back(at);
    at += one.end - one.begin;
  }
  return out;
}

inline TokenSpan overlap(const TokenSpan& a, const TokenSpan& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// The part of a cross piece that lies in `q` and `k`; without queries where there is none.
inline AttentionPlan::Cross cut(const AttentionPlan::Cross& piece, const TokenSpan& q, const TokenSpan& k) {
  AttentionPlan::Cross out{q.begin, q.end, k.begin, k.end, piece.masked, 0};
  if (!piece.masked) return out;
  const std::int64_t keys = k.end - k.begin;
  out.offset = piece.offset + (q.begin - piece.query_begin) - (k.begin - piece.key_begin);
  out.query_end = q.begin + std::clamp<std::int64_t>(keys - 1 - out.offset, 0, q.end - q.begin);
  if (out.query_end - out.query_begin - 1 + out.offset < 0) {
    out.masked = false;
    out.offset = 0;
  }
  return out;
}

}  // namespace detail

RLALGO_INLINE std::int64_t tokens_of(const TokenSpans& spans) {
  std::int64_t out = 0;
  for (const TokenSpan& one : spans) out += one.end - one.begin;
  return out;
}

RLALGO_INLINE std::vector<TokenSpans> split_tokens(const TokenTree& tree, int ranks, Dealing dealing) {
  const std::int64_t total = tree.tokens();
  const std::int64_t each = dealing == Dealing::neighbours ? 1
                            : dealing == Dealing::stripes  ? detail::stripes_per_rank
                            : tree.segments.size() <= 1    ? 2
                                                           : 4;
  const std::int64_t pieces = each * ranks;
  const auto begin = [&](std::int64_t piece) { return total * piece / pieces; };
  std::vector<std::int64_t> order(static_cast<std::size_t>(pieces));
  std::iota(order.begin(), order.end(), 0);
  if (dealing == Dealing::balanced) {
    std::vector<std::int64_t> seen(order.size(), 0);  // keys, by all tokens of a piece
    for (std::int64_t p = 0; p < pieces; ++p)
      for (std::int64_t t = begin(p); t < begin(p + 1); ++t)
        seen[static_cast<std::size_t>(p)] += tree.positions[static_cast<std::size_t>(t)] + 1;
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return seen[static_cast<std::size_t>(a)] < seen[static_cast<std::size_t>(b)];
    });
  }
  std::vector<int> owner(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int round = static_cast<int>(i) / ranks, place = static_cast<int>(i) % ranks;
    const bool back = dealing == Dealing::balanced && round % 2 == 1;
    owner[static_cast<std::size_t>(order[i])] = back ? ranks - 1 - place : place;
  }
  std::vector<TokenSpans> out(static_cast<std::size_t>(ranks));
  for (std::int64_t p = 0; p < pieces; ++p) {
    if (begin(p) == begin(p + 1)) continue;
    TokenSpans& own = out[static_cast<std::size_t>(owner[static_cast<std::size_t>(p)])];
    if (!own.empty() && own.back().end == begin(p))
      own.back().end = begin(p + 1);
    else
      own.push_back({begin(p), begin(p + 1)});
  }
  return out;
}

RLALGO_INLINE ContextPart part_of(const TokenTree& tree, const TokenSpans& own) {
  ContextPart out;
  std::vector<std::int64_t> place(static_cast<std::size_t>(tree.tokens()), -1);
  for (const TokenSpan& span : own)
    for (std::int64_t t = span.begin; t < span.end; ++t) {
      const auto i = static_cast<std::size_t>(t);
      place[i] = out.tree.tokens();
      out.rows.push_back(t);
      out.tree.ids.push_back(tree.ids[i]);
      out.tree.positions.push_back(tree.positions[i]);
    }
  for (std::size_t n = 0; n < tree.target.size(); ++n) {
    const std::int64_t at = place[static_cast<std::size_t>(tree.source[n])];
    if (at < 0) continue;
    out.targets.push_back(static_cast<std::int64_t>(n));
    out.tree.source.push_back(at);
    out.tree.target.push_back(tree.target[n]);
    if (static_cast<std::int64_t>(n) >= tree.targets() - tree.untempered) ++out.tree.untempered;
  }
  out.tree.row_begin = {0, out.tree.targets()};
  std::vector<std::int64_t> sources = tree.source;
  std::sort(sources.begin(), sources.end());
  sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
  for (std::size_t s = 0; s < sources.size(); ++s)
    if (place[static_cast<std::size_t>(sources[s])] >= 0) out.source_rows.push_back(static_cast<std::int64_t>(s));
  return out;
}

RLALGO_INLINE TargetOwners owners_of_targets(const TokenTree& tree, const std::vector<TokenSpans>& split) {
  std::vector<std::size_t> owner(static_cast<std::size_t>(tree.tokens()), 0);
  for (std::size_t r = 0; r < split.size(); ++r)
    for (const TokenSpan& span : split[r])
      for (std::int64_t t = span.begin; t < span.end; ++t) owner[static_cast<std::size_t>(t)] = r;
  std::vector<std::vector<std::int64_t>> each(split.size());
  for (std::size_t n = 0; n < tree.source.size(); ++n)
    each[owner[static_cast<std::size_t>(tree.source[n])]].push_back(static_cast<std::int64_t>(n));
  TargetOwners out;
  for (const auto& one : each) {
    out.counts.push_back(static_cast<std::int64_t>(one.size()));
    out.targets.insert(out.targets.end(), one.begin(), one.end());
  }
  return out;
}

RLALGO_INLINE AttentionPlan plan_between(const AttentionPlan& plan, const TokenSpans& queries, const TokenSpans& keys) {
  AttentionPlan out;
  out.tokens = tokens_of(queries);
  const std::vector<std::int64_t> query_places = detail::places_of(queries), key_places = detail::places_of(keys);
  // Adds a piece of the whole plan's counting.
  const auto add = [&](const AttentionPlan::Cross& piece, std::size_t q, std::size_t k) {
    AttentionPlan::Cross local = piece;
    if (local.query_begin >= local.query_end || local.key_begin >= local.key_end) return;
    const std::int64_t of_query = query_places[q] - queries[q].begin, of_key = key_places[k] - keys[k].begin;
    local.query_begin += of_query;
    local.query_end += of_query;
    local.key_begin += of_key;
    local.key_end += of_key;
    out.cross.push_back(local);
  };
  for (const AttentionPlan::Own& own : plan.own) {
    AttentionPlan::Own group;  // what is left of a padded piece
    for (std::size_t b = 0; b < own.begins.size(); ++b) {
      const TokenSpan segment{own.begins[b], own.begins[b] + own.sizes[b]};
      for (std::size_t q = 0; q < queries.size(); ++q) {
        const TokenSpan seeing = detail::overlap(segment, queries[q]);
        if (seeing.begin >= seeing.end) continue;
        for (std::size_t k = 0; k < keys.size(); ++k) {
          const TokenSpan seen = detail::overlap({segment.begin, seeing.end}, keys[k]);
          if (seen.begin >= seen.end) continue;
          if (seen.end <= seeing.begin) {
            add({seeing.begin, seeing.end, seen.begin, seen.end}, q, k);
            continue;
          }
          const std::int64_t begin = seeing.begin - queries[q].begin + query_places[q];  // the same span on both sides
          const std::int64_t size = seeing.end - seeing.begin;
          if (own.begins.size() == 1) {
            out.own.push_back({size, {begin}, {size}});
          } else {
            group.begins.push_back(begin);
            group.sizes.push_back(size);
          }
        }
      }
    }
    if (group.begins.empty()) continue;
    group.length = *std::max_element(group.sizes.begin(), group.sizes.end());
    out.own.push_back(std::move(group));
  }
  for (const AttentionPlan::Cross& piece : plan.cross)
    for (std::size_t q = 0; q < queries.size(); ++q) {
      const TokenSpan seeing = detail::overlap({piece.query_begin, piece.query_end}, queries[q]);
      if (seeing.begin >= seeing.end) continue;
      for (std::size_t k = 0; k < keys.size(); ++k) {
        const TokenSpan seen = detail::overlap({piece.key_begin, piece.key_end}, keys[k]);
        if (seen.begin < seen.end) add(detail::cut(piece, seeing, seen), q, k);
      }
    }
  return out;
}

}  // namespace rlalgo::model
